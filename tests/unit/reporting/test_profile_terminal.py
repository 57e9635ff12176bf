"""The longest layers of a case as the terminal prints them."""

from __future__ import annotations

from harness.profiling.layers import LayerChoice
from harness.reporting.tables.profile_tables import terminal_layers
from tests.synthetic_layers import EAGER, ORT


def test_layers_are_longest_first_and_add_up() -> None:
    assert terminal_layers("case", EAGER, top=2).splitlines() == [
        "case: layers, grade A, 1.00 of the plain latency: adds up, 2 repeats within 2.0%",
        "module or layer    kind    group        self ms    share",
        "-----------------  ------  ---------  ---------  -------",
        "mlp                Linear  mlp             12.0    60.0%",
        "attention          Linear  attention       7.00    35.0%",
        "Sums: shown 19.0 ms + 2 shorter ones 1.00 ms = 20.0 ms.",
    ]


def test_a_choice_counts_the_rows_that_it_leaves_out() -> None:
    lines = terminal_layers("case", ORT, LayerChoice(("attention", "mlp"))).splitlines()
    assert [line.split()[0] for line in lines[3:-1]] == ["mlp.act", "attention"]
    assert lines[-1] == "Sums: shown 8.00 ms + left out by the choice 40.0 µs = 8.04 ms."
    assert terminal_layers("case", ORT, LayerChoice(("pooling",))) == "case: no layer matches `pooling`"


def test_a_backend_without_layers_shows_operators() -> None:
    alone = EAGER.model_copy(update={"layers": ()})
    assert terminal_layers("case", alone).splitlines()[-1].split() == ["aten::addmm", "2", "9.00"]
