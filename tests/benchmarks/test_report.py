"""Medians and ratios, held against figures worked out by hand."""

import json

import pytest

from benchmarks.measure import Measurement, Ratio, WorkResult
from benchmarks.pages import markdown
from benchmarks.report import figure, to_data

MACHINE = {
    "cpu": "Z80",
    "usable_cores": 2,
    "memory_gb": 1,
    "system": "CP/M",
    "python": "CPython 3.11",
    "load": 0.1,
    "packages": {"vecwrap": "0.1"},
    "date": "2026-01-02T03:04:05+00:00",
}


def measurement(name, *values, side="peer", quantity="rate", **more):
    return Measurement(name, side, rounds=[{quantity: value} for value in values], **more)


def result(*measurements, key="work"):
    return WorkResult(key, "some work", "as it is", measurements)


RATES = result(
    measurement("ours", 300.0, 100.0, 200.0, side="ours"),
    measurement("peer", 100.0, 50.0, 400.0, note="does | more"),
)
COSTS = result(
    measurement("ours", 4.0, 2.0, side="ours", quantity="chain"),
    measurement("peer", 8.0, 12.0, quantity="chain"),
)


def test_the_ratio_is_of_the_medians_and_its_spread_of_the_rounds():
    assert RATES.ratio(RATES.measurements[1]) == Ratio(2.0, 0.5, 3.0)


def test_of_costs_the_smaller_is_the_better():
    assert COSTS.ratio(COSTS.measurements[1], "chain") == Ratio(10 / 3, 2.0, 6.0)


def test_there_is_no_ratio_to_what_has_no_figures():
    broken = measurement("broken", 5.0, missing="failed")
    assert result(*RATES.measurements, broken).ratio(broken) is None
    ours, peer = RATES.measurements
    assert RATES.ratio(ours) is None
    assert RATES.ratio(peer, "memory") is None


def test_the_lead_is_the_first_of_ours_that_has_figures():
    missing = measurement("first", side="ours", missing="not here")
    assert (
        result(missing, measurement("peer", 1.0), measurement("second", 1.0, side="ours")).lead.name
        == "second"
    )
    assert result(missing).lead is None


def cells(text):
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in row.replace("\\|", "¦").strip("|").split("|")] for row in rows
    ]


def test_the_markdown_holds_the_medians_and_the_remarks():
    text = markdown(MACHINE, [RATES])
    assert text.startswith(
        "Measured on: Z80, 2 usable cores, 1 GB, CP/M, CPython 3.11; vecwrap 0.1; 2026-01-02."
    )
    rows = cells(text)
    assert ["env steps/s", "median", "spread", "ours is", "remarks"] in rows
    assert ["peer", "100", "50 to 400", "2.00 × (0.50 to 3.00)", "does ¦ more"] in rows


def test_a_row_without_figures_says_why_in_its_place():
    rows = cells(markdown(MACHINE, [result(measurement("peer", missing="is not installed"))]))
    assert ["peer", "–", "", "", "is not installed"] in rows


def test_the_data_are_json_with_every_sample_and_how_the_lead_compares():
    data = json.loads(json.dumps(to_data(MACHINE, [RATES, COSTS], rounds=3)))
    assert data["machine"]["cpu"] == "Z80"
    assert data["rounds"] == 3
    ours, peer = data["results"][0]["contenders"]
    assert [sample["rate"] for sample in ours["rounds"]] == [300.0, 100.0, 200.0]
    assert (ours["medians"], peer["note"]) == ({"rate": 200.0}, "does | more")
    costs = data["results"][1]["contenders"]
    assert costs[1]["lead_is"] == {"chain": {"of_medians": 10 / 3, "low": 2.0, "high": 6.0}}
    assert costs[0]["lead_is"] == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123, "0.0123"),
        (99.96, "100"),
        (999.6, "1,000"),
        (9999.0, "9,999"),
        (123456.0, "123,500"),
    ],
)
def test_figures_have_no_more_digits_than_they_mean(value, text):
    assert figure(value) == text
