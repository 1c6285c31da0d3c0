"""Command lines and calls that no one should write, by the thousand, from a grammar and a seed.

    python tests/hostile.py --lines 1000 --calls 100 --seed 7

runs them in this process and prints as JSON how they ended (`hostile_ends.py`).
"""

import argparse
import json
import resource
import sys
import time

DEEP, DIGITS = "[" * 3000 + "]" * 3000, "9" * 5000

FILES = {
    "good.py": "def f(y):\n    return sum(y)\n",
    "pair.py": "def f(y, context):\n    return float(y[-1] == context[-1]) if context else 0.0\n",
    "raises.py": "def f(y):\n    raise RuntimeError('no idea\\nsecond line \\x1b[31m')\n",
    "exits.py": "import sys\ndef f(y):\n    sys.exit(0)\n",
    "leaves.py": "raise SystemExit(0)\n",
    "broken.py": "def f(:\n",
    "huge.py": "def f(y):\n    return 1e308\n",
    "tiny.py": "def f(y):\n    return 1e-320 * y[0]\n",
    "text.py": "f = 'no function'\n",
    "wants.py": "def f(a, b, c):\n    return 0\n",
    "alone.py": "import no_such_neighbour\ndef f(y):\n    return 0\n",
    "models.py": (
        "import sys\n"
        "def half(tokens):\n    return [[0.5, 0.5]] * len(tokens)\n"
        "half.vocab_size, half.order = 2, 0\n"
        "def text(tokens):\n    return half(tokens)\ntext.vocab_size, text.order = '2', 0\n"
        "def real(tokens):\n    return half(tokens)\nreal.vocab_size, real.order = 2.0, 0\n"
        "def many(tokens):\n    return half(tokens)\nmany.vocab_size, many.order = 10**30, 0\n"
        "def exits(tokens):\n    sys.exit(0)\nexits.vocab_size, exits.order = 2, 0\n"
        "def wrong(tokens):\n    return [[0.9, 0.9]]\nwrong.vocab_size, wrong.order = 2, 0\n"
        "def nothing(tokens):\n    return None\nnothing.vocab_size, nothing.order = 2, 0\n"
        "class Kind:\n    vocab_size, order = 2, 0\n"
        "    def start(self, batch):\n        sys.exit(0)\n"
        "    def advance(self, state, tokens):\n        return None\n"
        "made = Kind()\n"
    ),
    "good.toml": 'models = "exact:urn"\nutilities = "dyck"\nmethods = "random(prompts=2)"\n'
    "lengths = 3\nhorizons = 2\nseeds = 1\n",
    "deep.toml": "a = " + "[" * 3000,
    "nested.toml": "a" + ".a" * 500 + " = 1\n",
    "digits.toml": f'models = "urn"\nutilities = "dyck"\nmethods = "gcg"\nseeds = {DIGITS}\n',
    "far.toml": 'models = "urn"\nutilities = "dyck"\nmethods = "gcg"\nhorizons = [10000000000]\n',
    "real.toml": 'models = "urn"\nutilities = "dyck"\nmethods = "gcg"\nlengths = [2.5]\n',
    "never.toml": 'models = "exact:urn"\nutilities = "dyck"\nmethods = "gcg"\nseeds = 1\n',
    "million.toml": 'models = "exact:urn"\nutilities = "dyck"\nmethods = "beam"\nseeds = 90000\n'
    "[[grid]]\nlengths = [1,2,3,4,5,6]\n[[grid]]\nlengths = [7,8,9,10,11,12]\n",
    "typo.toml": 'model = "urn"\nutilities = "dyck"\nmethods = "gcg"\n',
    "empty.toml": "",
    "bytes.toml": "a = '\udcff'\n",
    "junk": "nonsense",
    "atoms.json": '{"atoms": [{"kernel": [[0.2, 0.8]]}, {"kernel": [[0.9, 0.1], [0.5, 0.5]]}]}',
    "cut.json": '{"atoms": [{"kernel": [[0.2, 0.8]',
    "deep.json": '{"atoms": ' + DEEP + "}",
    "rows.json": '{"atoms": [{"operators": [[[0.2], [0.9]]]}]}',
    "cut.npz": "PK\x03\x04",
    "model/manifest.json": "{}",
    "model/config.json": "[]",
}
"""A folder to run in; written before the first line."""

WHOLE = ["0", "-1", "1", "2.5", "6.7", "0.5", "1e3", "six", "", " ", "0x10", "\u0663", "nan", "inf",
         "-0", "+2", str(10**30), str(2**63), DIGITS, "1,000", "1_0", "--", "\0"]  # fmt: skip
TEXTS = ["", " ", "\0", "\n", "'", "%s", "🙂", "\udcff", "-", "--", "x" * 5000, DEEP, "../..", "[]"]
MODELS = {
    "good": ["exact:urn", "exact:beta-bernoulli", "exact:coins(0.2,0.7)", "models.py:half",
             "exact:markov(vocab=3,order=1)", "exact:coins(1.0)", "exact:mess3", "exact:rrxor",
             "exact:context-tree(depth=1)", "exact:draws(urn,n=9)",
             "exact:random-hmm(states=2,vocab=2,n=5)", "exact:chains(n=3,vocab=2)",
             "exact:ginc(vocab=3,entities=2,properties=2)", "exact:mixture(atoms.json)",
             "personas(exact:urn,models.py:half,weights=[0.4,0.6])"],
    "bad": ["", "unr", "exact:", "exact:makrov", "exact:markov(2,1)", "exact:markov(vocba=2)",
            "exact:markov(vocab=1)", "exact:markov(vocab=2.5)", "exact:markov(order=-1)",
            "exact:markov(vocab=100000,order=3)", "exact:markov(concentration=1e308)",
            "exact:markov(concentration=1e-320)", "exact:markov(concentration=0)",
            "exact:markov(concentration=[[1,2],[3]])", "exact:markov(concentration=NaN)",
            f"exact:markov(vocab={DIGITS})", f"exact:mixture({DEEP})", "exact:coins()",
            "exact:coins(2)", "exact:coins(0.5,weights=[1,2])", "exact:mixture([0.5,0.6])",
            "exact:mixture([0.5,0.5],[[0.5,0.5]])", "exact:coins(" + "0.5," * 200_000 + "0.5)",
            "exact:context-tree(depth=99)", "exact:context-tree(split=2)",
            f"exact:context-tree(vocab={DIGITS})", "exact:context-tree(vocab=1)",
            "exact:dirichlet-mixture([[1e-320,1]])", "exact:dirichlet-mixture(5)", "junk", "model",
            ".", "models.py:", ":", "models.py:absent", "absent.py:f", "models.py:text",
            "models.py:real", "models.py:many", "models.py:exits", "models.py:wrong",
            "models.py:nothing", "models.py:Kind", "models.py:made", "leaves.py:f", "broken.py:f",
            "alone.py:f", "text.py:f", "good.py:f", "hf:nothing",
            "exact(urn)", "exact:draws(5)", "exact:draws(urn,n=0)", "exact:draws(urn,n=1e30)",
            f"exact:draws(urn,seed={DIGITS})", "exact:draws(draws(urn,n=10000000))",
            "exact:chains(n=0)", "exact:chains(vocab=1)", "exact:chains(vocab=1000,order=32)",
            "exact:chains(concentration=0)", "exact:chains(concentration=1e308)",
            "exact:random-hmm(states=1000,vocab=1000)", "exact:random-hmm(concentration=-1)",
            "exact:random-hmm(n=2.5)", "exact:ginc(vocab=1)", "exact:ginc(entities=1000)",
            "exact:ginc(temperature=0)", "exact:ginc(stay=2)", "exact:ginc(properties=1)",
            "exact:mess3(x=0.9)", "exact:sticky(stay=1)", "exact:atoms(urn)", "exact:atoms()",
            "exact:hmm([[[1]]])", "exact:hmm(5)", "exact:mixture(cut.json)",
            "exact:mixture(deep.json)", "exact:hmm(rows.json)", "exact:mixture(cut.npz)",
            "exact:mixture(absent.npz)", "personas", "personas()",
            "personas(", "personas(5)", "personas(exact:urn,exact:markov(vocab=3))",
            "personas(exact:urn,weights=[2])", "personas(exact:urn,weights=x)", "personas(junk)",
            f"personas({DEEP})", "personas(" + "exact:urn," * 99 + "exact:urn)",
            "personas(models.py:exits,exact:urn)", "personas(models.py:wrong)", *TEXTS],
}  # fmt: skip
UTILITIES = {
    "good": ["dyck", "frequency(0.3)", "frequency(1,token=0)", "reverse-xent(tau-0.2)",
             "reverse-xent(sym-0.1)", "forward-xent(tau-0.3)", "good.py:f", "pair.py:f",
             "tiny.py:f"],
    "bad": ["joy", "dick", "dyck(1)", "frequency", "frequency()", "frequency(2)", "frequency(-0.1)",
            "frequency(0.3,token=9)", "frequency(0.3,token=0.5)", f"frequency({DIGITS})",
            "frequency(1e999)", "frequency(NaN)", "frequency(0.1,0.2)", "frequency(0.1,tokne=1)",
            "frequency(0.3", "frequency)0.3(", "frequency(0.3))", "reverse-xent(tau-2)",
            "reverse-xent(tau-)", "reverse-xent(dir-x)", f"reverse-xent(dir-{DIGITS})",
            "reverse-xent([0.5,0.6])", f"reverse-xent({DEEP})", "reverse-xent([])",
            "reverse-xent([[]])", "reverse-xent([[0.5,0.5],[1]])", "reverse-xent(sym-nan)",
            "raises.py:f", "exits.py:f", "leaves.py:f", "broken.py:f", "huge.py:f", "text.py:f",
            "wants.py:f", "alone.py:f", "absent.py:f", "good.py:g", *TEXTS],
}  # fmt: skip
METHODS = {
    "good": ["exhaustive", "beam(width=2)", "random(prompts=3)", "coordinate(restarts=1)",
             "ppt-rb-analytic(samples=20,steps=2)", "ppt-analytic(samples=20,steps=2)",
             "classes-analytic(samples=20,estimator=importance)",
             "climb-analytic(samples=20,width=2)",
             "ppt-rb(samples=20,rollout-length=20,steps=2)"],
    "bad": ["magic", "exhautive", "gcg", "soft-pt", "gcg(top_k=0)", "gcg(top-k=0)", "beam(width=0)",
            "beam(width=2.5)", f"beam(width={DIGITS})", "beam(2)", "random(prompts=-1)",
            "random(prompts=1e30)", f"random(prompts={10**15})", "coordinate(restarts=inf)",
            f"coordinate(restarts={10**15})", "ppt(samples=1)", f"ppt(samples={10**15})",
            "ppt-rb-analytic(steps=0)", f"ppt-rb-analytic(samples=20,steps={10**15})",
            "ppt-rb-analytic(tilt=none)", "ppt(device=tpu)", "ppt-rb-analytic(samples=20,rate=nan)",
            "classes-analytic(estimator=magic)", "classes-analytic(samples=20,keep=0)",
            "climb-analytic(samples=20,width=0)", f"climb-analytic(samples=20,rounds={10**15})",
            f"classes-analytic(limit={10**15})", f"auto(verify={10**30})", "auto(verify=-1)",
            f"ppt-rb({DEEP})", "ppt-rb(samples=20,rollout-length=0)", *TEXTS],
}  # fmt: skip
ALLOWED = {
    "good": ["first=0", "ban=11", "count(1)<=2", "position(2)=0|1", "last=1;first=0", ""],
    "bad": ["first=3", "ban=0,1", "first=", "=0", "count(1)<=99999999999999999999", "count(1)>=9",
            "count(5)<=1", "count(1)<=-1", "count(1)<=x", "position(0)=1", "position(99)=1",
            f"position({DIGITS})=1", "first=0;first=1", "first>=0", "count()=1", "count(1,2)=1",
            "first=01010101010101", ";;", "first=0;;last", "magic=1", "first=\u0663", *TEXTS],
}  # fmt: skip
PROMPTS = {
    "good": ["01", "0110", "111", "000000", "0,1,1"],
    "bad": [
        "",
        "0",
        "2",
        "01x",
        "0 1",
        "01,",
        "-1,0",
        "0.5",
        "\u0660\u0661",
        "01" * 3000,
        "9" * 50,
        *TEXTS,
    ],
}
CONTEXTS = {"good": ["", "0", "0110"], "bad": ["2", "0x", "0.5", "01" * 20_000, *TEXTS]}
ALPHABETS = {"good": ["H,T", "(,)"], "bad": ["", ",", "H", "H,H", "#1,#2", "a,b,c,d,e,f,g", *TEXTS]}
WORDS = {"good": [""], "bad": ["A coin:", "\0", DIGITS]}
DEVICES = {"good": ["cpu", "auto"], "bad": ["tpu", "cuda:99", "cuda:-1", "CPU", *TEXTS]}
REALS = {"good": ["0.1"], "bad": ["0", "-1", "nan", "inf", "1e308", "x", "", DIGITS, "1e-320"]}
RATES = {"good": ["1e-3"], "bad": ["1e38", "-1", "nan", "inf", "0", "1e-320", "x", "", "1e999"]}


def whole(*good):
    return {"good": list(good), "bad": WHOLE}


def named(*good):
    return {"good": list(good), "bad": ["magic", *TEXTS]}


def files(*good):
    return {"good": list(good), "bad": ["", "\0", "a\0b", "no/such/folder/x", "model", "y" * 5000]}


ASKED = {"--model": MODELS, "--utility": UTILITIES, "--length": whole("2", "3", "4"),
         "--horizon": whole("1", "2", "3"), "--context": CONTEXTS, "--allowed": ALLOWED,
         "--max-model-tokens": whole("500"), "--device": DEVICES, "--alphabet": ALPHABETS,
         "--text": WORDS}  # fmt: skip
COMMANDS = {
    ("elicit",): {**ASKED, "--method": METHODS, "--seed": whole("0", "3", "-2"),
                  "--bank": files("junk"), "--verify": whole("0", "2"),
                  "--view": named("panel", "json")},
    ("compare",): {**ASKED, "--methods": {"good": ["random(prompts=2)", "beam(width=2),exhaustive"],
                                          "bad": ["", ",", "gcg(", *METHODS["bad"]]},
                   "--seeds": whole("1", "2"), "--amortise": whole("1", "51"),
                   "--figure": files("x.svg"), "--view": named("json")},
    ("evaluate",): {"--model": MODELS, "--utility": UTILITIES, "--prompt": PROMPTS,
                    "--horizon": whole("1", "3"), "--seed": whole("1"), "--context": CONTEXTS,
                    "--device": DEVICES, "--view": named("panel")},
    ("sample",): {"--model": MODELS, "--rollouts": whole("20", "30"), "--length": whole("9", "12"),
                  "--out": files("bank"), "--seed": whole("0"), "--context": CONTEXTS,
                  "--unvisited": named("donor", "uniform"), "--chunk": whole("7"),
                  "--family": named("hmm(states=2)"), "--seconds": REALS, "--effort": REALS,
                  "--figure": files("x.svg"), "--device": DEVICES},
    ("train",): {"--out": files("run"), "--preset": named("tiny"), "--process": named("urn"),
                 "--layers": whole("1"), "--width": whole("8"), "--heads": whole("2"),
                 "--feedforward": whole("8"), "--positions": named("none", "learned"),
                 "--batch": whole("2"), "--length": whole("6"), "--steps": whole("2"),
                 "--warmup": whole("0", "1"), "--peak-rate": RATES, "--final-rate": RATES,
                 "--accumulate": whole("1"), "--seed": whole("0"), "--device": DEVICES,
                 "--max-minutes": REALS},
    ("models",): {"--json": None},
    ("methods",): {"": named("gcg", "auto")}, ("utilities",): {"": named("dyck")},
    ("sweep",): {"--out": files("runs"), "--preset": named("magic"),
                 "--config": {"good": ["good.toml"],
                              "bad": [name for name in FILES if name.endswith("toml")] + TEXTS},
                 "--device": DEVICES, "--workers": whole("1"), "--batch": whole("2"),
                 "--executor": named("local")},
    ("sweep", "plan"): {"--config": {"good": ["good.toml"],
                                     "bad": [n for n in FILES if n.endswith("toml")] + TEXTS},
                        "--preset": named("magic"), "--out": files("none"), "--device": DEVICES,
                        "--workers": whole("1"), "--batch": whole("2")},
    ("sweep", "status"): {"--out": files("junk", "model")},
    ("sweep", "retry"): {"--out": files("junk", "model"), "--batch": whole("2")},
    ("tables",): {"": files("junk", "model"), "--out": files("tables")},
    ("report",): {"": files("junk", "model"), "--out": files("page.html"), "--length": whole("6")},
}  # fmt: skip
FLAGS = {"elicit": ["--json", "--allow-mismatch", "--verbose"], "compare": ["--json"],
         "evaluate": ["--json"],
         "sample": ["--json", "--keep-tokens", "--check"], "train": ["--json"], "models": [],
         "methods": ["--json"], "utilities": ["--json"],
         "sweep": ["--json", "--extend"], "tables": ["--figures", "--json"],
         "report": ["--json"]}  # fmt: skip
NEEDED = {"elicit": ["--method", "--length"],
          "compare": ["--model", "--methods", "--seeds", "--length"],
          "evaluate": ["--prompt"], "sample": ["--out", "--model", "--rollouts", "--length"],
          "train": ["--out", "--preset", "--steps", "--batch", "--length", "--warmup"],
          "tables": [""], "report": [""], "sweep": ["--out", "--config"]}  # fmt: skip
"""Options that a quick line cannot do without."""


def command_line(draw):
    """One line: what its command needs and some more, none to three values of it hostile."""
    words = draw.choice(list(COMMANDS))
    options = {k: v for k, v in COMMANDS[words].items() if v is not None}
    wanted = [name for name in NEEDED.get(words[0], []) if name in options]
    if draw.random() < 0.05:
        wanted = wanted[1:]
    more = [name for name in options if name not in wanted]
    wanted += draw.sample(more, min(len(more), draw.choice([0, 1, 1, 2, 3])))
    hostile = set(draw.sample(wanted, min(len(wanted), draw.choice([0, 1, 1, 1, 2, 3]))))
    line = list(words)
    for name in wanted:
        values = options[name]
        value = draw.choice(values["bad"] if name in hostile else values["good"])
        line += (
            [value] if name == "" else [f"{name}={value}"] if draw.random() < 0.3 else [name, value]
        )
    for flag in FLAGS[words[0]]:
        line += [flag] * (draw.random() < 0.3)
    if draw.random() < 0.03:
        line.insert(draw.randrange(len(line) + 1), draw.choice(["--lenth", "--", "-h", *TEXTS]))
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=0)
    parser.add_argument("--calls", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    from hostile_calls import fuzz_calls
    from hostile_ends import SLOWEST, fuzz_lines

    found = {
        "lines": fuzz_lines(given.lines, given.seed),
        "calls": fuzz_calls(given.calls, given.seed),
        "slowest": SLOWEST,
        "cpu_seconds": time.process_time(),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(found), file=sys.__stdout__)


if __name__ == "__main__":
    main()
