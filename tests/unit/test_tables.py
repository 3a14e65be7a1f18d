"""The tables of runs: a row a case, an identity, a behaviour; numbers are numbers and
text is text, also for a spreadsheet."""

from __future__ import annotations

import sys

import pandas
import pytest

from oracle import contracts
from reports import tables
from tests import sample_run as sample


def read(paths) -> dict[str, pandas.DataFrame]:
    numbers = (
        "margin_ulp", "production_s", "error_of_bound", "worst_error_of_bound", "cases_per_production_s", "cases_per_s",
        "compile_s",
    )  # fmt: skip
    missing = {name: [""] for name in numbers}
    return {p.stem: pandas.read_csv(p, keep_default_na=False, na_values=missing) for p in paths}


@pytest.fixture()
def made(tmp_path) -> dict[str, pandas.DataFrame]:
    run = sample.write(tmp_path / "run", sample.every_kind())
    return read(tables.write([run], tmp_path, "csv"))


def test_a_row_a_case_with_what_it_turned_out_to_be(made):
    rows = made["verdicts"].set_index("case")
    assert list(rows["verdict"]) == [
        "DIVERGE", "AGREE", "DIVERGE", "FLAKY", "ORACLE_SUSPECT", "CRASH", "HANG", "HARNESS_ERROR", "UNSUPPORTED",
        "DIVERGE",
    ]  # fmt: skip
    assert rows.loc[1, "frozen_case"] == "commit.checkpoint_steps/lands-on-256-51d279f73e"
    assert (rows.loc[1, "field"], rows.loc[1, "kind"]) == ("checkpoint_step", "missing")
    assert list(rows.index[rows["known"]]) == [3] and list(rows.index[rows["near_tie"]]) == [2]
    assert rows.loc[2, "margin_ulp"] == 0.25 and rows["margin_ulp"].isna().sum() == 9
    assert rows.loc[10, "rows"] == 9 and rows.loc[1, "production_s"] == 0.25
    assert set(rows["engine"]) == {"sglang"} and set(rows["version"]) == {"0.5.18"} and set(rows["run"]) == {"run"}


def test_a_row_a_target_with_its_worst_error(tmp_path):
    events = [sample.started()]
    for number, share in enumerate((0.25, 0.5, None), start=1):
        evidence = {} if share is None else {"evidence": {"error_of_bound": share}}
        events += [
            sample.start(number),
            sample.end(number, "AGREE", behaviours=["no_boundary"], production_s=0.5, **evidence),
        ]
    events += [sample.start(4), sample.red(4, evidence={"claim": "far", "error_of_bound": 9.0})]
    made = read(tables.write([sample.write(tmp_path / "run", events)], tmp_path, "csv"))
    (row,) = made["targets"].to_dict("records")
    assert (row["verdict"], row["cases"], row["agree"], row["red"]) == ("DIVERGE", 4, 3, 1)
    assert row["worst_error_of_bound"] == 0.5 and row["behaviours"] == 1
    assert row["behaviours_of_contract"] == len(contracts.get(sample.CONTRACT).behaviours)
    assert row["cases_per_production_s"] == pytest.approx(4 / 1.75)
    assert pandas.isna(row["cases_per_s"]) and row["compile_s"] == 0, "these events have no times"
    assert list(made["verdicts"]["error_of_bound"].fillna(-1)) == [0.25, 0.5, -1, 9.0]


def test_cases_per_second_are_of_wall_time_without_compilation(tmp_path):
    events = [sample.started()]
    for number, (begins, ends, compiled) in enumerate(((1.0, 6.0, 4.0), (6.0, 7.0, 0.0)), start=1):
        events += [sample.start(number, time=begins), sample.end(number, "AGREE", time=ends, compile_s=compiled)]
    events += [sample.start(3, time=7.0), sample.end(3, "UNSUPPORTED", time=99.0, evidence={"reason": "outside"})]
    made = read(tables.write([sample.write(tmp_path / "run", events)], tmp_path, "csv"))
    (row,) = made["targets"].to_dict("records")
    assert (row["cases"], row["cases_per_s"], row["compile_s"]) == (2, 1.0, 4.0)


def test_a_row_an_identity(made):
    rows = made["divergences"].set_index("kind")
    assert rows.loc["missing", "claim"] == sample.CLAIM and rows.loc["missing", "rate"] == "3 of 3 fresh processes"
    assert rows.loc["missing", "frozen"] == "found/commit.checkpoint_steps/a-0123456789.json"
    assert rows.loc["died:SIGSEGV", "severity"] == "crash" and list(rows.index[rows["known"]]) == ["spurious"]
    assert rows.loc["late", "verdict"] == "FLAKY" and rows.loc["missing", "cases"] == 1


def test_a_row_a_behaviour_also_of_those_never_shown(made):
    rows = made["behaviours"]
    mine = rows[rows["target"] == sample.TARGET].set_index("behaviour")["cases"]
    assert mine["lands_on_boundary"] == 1
    never = set(contracts.get(sample.CONTRACT).behaviours) - {"lands_on_boundary", "no_boundary"}
    assert never and {name for name, cases in mine.items() if cases == 0} == never


def test_runs_and_engines_are_told_apart(tmp_path):
    one = sample.write(tmp_path / "one", sample.several_engines())
    two = sample.write(tmp_path / "two", [sample.started(device="cuda:0"), sample.red(1)])
    rows = read(tables.write([one, two], tmp_path, "csv"))["verdicts"]
    assert list(zip(rows["run"], rows["version"], rows["device"], rows["verdict"])) == [
        ("one", "0.5.18", "cpu", "DIVERGE"), ("one", "0.5.20", "cpu", "AGREE"), ("two", "0.5.18", "cuda:0", "DIVERGE"),
    ]  # fmt: skip


def test_a_run_without_a_case_has_empty_tables_with_their_columns(tmp_path):
    made = read(tables.write([sample.write(tmp_path / "run", [sample.started()])], tmp_path, "csv"))
    assert {name: list(table.columns) for name, table in made.items()} == {
        name: list(columns) for name, columns in tables.COLUMNS.items()
    }
    assert all(len(table) == 0 for table in made.values())


@pytest.mark.parametrize("form", tables.FORMATS)
@pytest.mark.parametrize("text", sample.HOSTILE)
def test_hostile_text_is_one_cell_and_no_formula(tmp_path, form, text):
    event = sample.red(1, text, evidence={"claim": text, "margin_ulp": "x"}, known=True)
    run = sample.write(tmp_path / "run", [sample.started(engine=text), sample.start(1, file=text), event])
    paths = tables.write([run], tmp_path, form)
    for path in paths:
        table = pandas.read_csv(path, keep_default_na=False) if form == "csv" else pandas.read_parquet(path)
        cells = [str(c) for c in table.to_numpy().ravel()]
        assert not [c for c in cells if c.startswith(("=", "@", "+")) or not c.isprintable() or len(c) > 2000]
        assert len(table) == {"verdicts": 1, "targets": 1, "divergences": 1, "behaviours": len(table)}[path.stem]


def test_parquet_holds_what_csv_holds(tmp_path):
    run = sample.write(tmp_path / "run", sample.every_kind())
    csv = read(tables.write([run], tmp_path, "csv"))
    for path in tables.write([run], tmp_path, "parquet"):
        table = pandas.read_parquet(path)
        assert list(table.columns) == list(csv[path.stem].columns)
        kinds = tables.COLUMNS[path.stem]
        assert {c: str(table[c].dtype).lower() for c, k in kinds.items() if k != "str"} == {
            c: k.lower() for c, k in kinds.items() if k != "str"
        }
        for column in table.columns:
            assert (
                table[column].astype(str).str.lower().str.replace("<na>", "").tolist()
                == csv[path.stem][column].astype(str).str.lower().tolist()
            )


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    run = sample.write(tmp_path / "run", [sample.started()])
    with pytest.raises(ValueError, match=r"specoracle\[parquet\]"):
        tables.write([run], tmp_path, "parquet")
    assert not (tmp_path / "tables").exists()


def test_a_link_is_not_followed_out_of_the_folder(tmp_path):
    run, elsewhere = sample.write(tmp_path / "run", [sample.started()]), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run / "tables").symlink_to(elsewhere)
    with pytest.raises(ValueError, match="tables"):
        tables.write([run], run, "csv")
    (run / "tables").unlink()
    (run / "tables").mkdir()
    (elsewhere / "theirs").write_text("theirs")
    (run / "tables" / "verdicts.csv").symlink_to(elsewhere / "theirs")
    tables.write([run], run, "csv")
    assert (elsewhere / "theirs").read_text() == "theirs" and not (run / "tables" / "verdicts.csv").is_symlink()


def test_a_target_that_had_no_turn_has_a_row_and_no_case(tmp_path):
    late, refused = sample.untold(), sample.untold("sglang/m/commit.lengths/x", "no such symbol")
    run = sample.write(tmp_path / "run", [sample.started(), sample.start(1), sample.end(1, "AGREE"), late, refused])
    rows = read(tables.write([run], tmp_path, "csv"))["verdicts"]
    assert list(rows["verdict"]) == ["AGREE", "NOT_REACHED", "UNSUPPORTED"] and list(rows["rows"]) == [1, 0, 0]
    assert rows["target"][1] == sample.OTHER and rows["case"][1] == "" and rows["contract"][1] == sample.CONTRACT
