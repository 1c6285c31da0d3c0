"""A record in a terminal leads with what a person wants, and keeps the rest behind `--verbose`."""

import re

from posteer.cli import main
from posteer.views.sentences import cost_text
from posteer.views.terminal.record import sparkline

FAST = "ppt-rb-analytic(samples=300,steps=40)"


def without_times(panel):
    return re.sub(r"[0-9.]+ s ", "", panel)


def test_panels_are_readable(capsys):
    main(["elicit", "--method", FAST, "--verbose"])
    text = capsys.readouterr().out
    for word in ("prompt", "expected utility", "optimum", "rank", "ESS / L", "k-hat", "steps"):
        assert word in text
    assert "of 64" in text
    assert "█" in text, "the sparkline of the ascent"
    main(["elicit", "--method", FAST, "--view", "details"])
    assert without_times(capsys.readouterr().out) == without_times(text)
    main(["elicit", "--method", FAST])
    rows = [line[2:20].strip() for line in capsys.readouterr().out.splitlines()[1:-1]]
    lead = ["prompt", "expected utility", "optimum", "how sure", "cost", "time"]
    assert [row for row in rows if row in lead] == lead
    assert set(rows) <= {*lead, "best prompt", "rank", ""}, "the rest is behind --verbose"
    main(["evaluate", "--prompt", "010110"])
    assert "missed by" in capsys.readouterr().out


def test_sparkline_spans_its_range():
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█" or sparkline([0.0, 0.5, 1.0]) == "▁▄█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([float("nan")]) == ""
    assert len(sparkline([float(i) for i in range(1000)])) == 40


def test_cost_in_words():
    free = {"forward_tokens": 0, "backward_tokens": 0, "bank_tokens": 0, "drawn_tokens": 0}
    assert cost_text(free) == "no model tokens"
    asked = {**free, "forward_tokens": 200, "backward_tokens": 73}
    assert cost_text(asked) == "273 model tokens"
    assert "9,995,000, once" in cost_text({**asked, "bank_tokens": 9_995_000})
    drawn = {**asked, "bank_tokens": 31_744, "drawn_tokens": 31_744}
    assert "273 model tokens, and 31,744 for a bank" in cost_text(drawn)
