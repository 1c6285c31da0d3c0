// What the explorer's page asks of its server. Errors are texts that are shown as they are.

async function answered(response) {
  const told = await response.json().catch(() => ({ error: `the server says ${response.status}` }));
  if (!response.ok) throw new Error(told.error || `the server says ${response.status}`);
  return told;
}

export async function ask(path) {
  return answered(await fetch(path, { credentials: "same-origin" }));
}

export async function send(path, data) {
  const given = { method: "POST", credentials: "same-origin", headers: { "content-type": "application/json" }, body: JSON.stringify(data) };
  return answered(await fetch(path, given));
}

// Messages of a run, from its first to its last.
export function follow(id, onmessage, onlost) {
  const source = new EventSource(`/api/runs/${encodeURIComponent(id)}/messages`);
  source.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (message.type === "end") source.close();
    onmessage(message);
  };
  source.onerror = () => {
    source.close();
    onlost();
  };
  return source;
}

// Only the newest of several calls counts, and one at a time is under way.
export function newest(act, done, failed) {
  let [busy, next] = [false, null];
  const go = async (given) => {
    busy = true;
    try {
      const found = await act(given);
      if (!next) done(found, given);
    } catch (error) {
      if (!next) failed(error, given);
    }
    busy = false;
    if (next) {
      const [then] = next;
      next = null;
      go(then);
    }
  };
  return (given) => {
    if (busy) next = [given];
    else go(given);
  };
}
