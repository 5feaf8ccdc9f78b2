"""The report as Markdown."""

import re
from pathlib import Path
from typing import Any

from chaos.faults import CATALOGUE, JOBS, Store
from chaos.measures import Cost
from chaos.page import Circumstances, Ended, Training, page, write


def a_cost(fault, answers=3.0, **others):
    known: dict[str, Any] = {
        "noticed": 0.12,
        "decided": 0.01,
        "still": 0.0,
        "whole": 5.0,
        "epochs_lost": None,
        "steps_lost": None,
    }
    known["needless"] = ()
    return Cost(fault, "worker-0", answers=answers, **{**known, "hit": ("worker-0",), "others": (), **others})


def a_training(*costs, findings=(), **others):
    known = {"verdict": "succeeded", "accuracy": 0.98, "seconds": 90.0, "epochs": 120, "bare": {"worker": 2.5}}
    return Training(costs=costs, findings=findings, **{"store": Store.SQLITE, **known, **others})


def rows(*trainings, load=4.0):
    text = page(Circumstances("scripts/chaos", "2026-01-31", 2, load), trainings)
    return text, [line for line in text.splitlines() if line.startswith("| ")]


def test_each_fault_has_one_row_in_catalogue_order() -> None:
    text, found = rows(a_training(a_cost("ps"), a_cost("worker")), a_training(a_cost("worker", answers=9.0)))

    assert CATALOGUE["worker"].what in found[2]
    assert "| file 2 | 0.12 | 0.010 | 6.0 (9.0) | 0.0 | 5.0 | none | worker-0 | - |" in found[2]
    assert CATALOGUE["ps"].what in found[3]
    assert CATALOGUE["master"].what not in text


def test_row_shows_repeated_steps_and_restarted_tasks() -> None:
    _, found = rows(a_training(a_cost("ps", epochs_lost=1, steps_lost=88, hit=("ps-0",), others=("chief-0",))))

    assert "| 88 | ps-0 | chief-0 |" in found[2]


def test_restart_time_is_compared_with_a_bare_start() -> None:
    text, _ = rows(a_training(a_cost("worker", answers=3.0)))

    assert "takes 2.5 s until it answers" in text
    assert "1.20 times as long" in text
    assert "Not measured" in rows(a_training(a_cost("ps")))[0]


def test_broken_invariant_is_in_the_row_of_its_training() -> None:
    broken = a_training(findings=("processes left: 12",), verdict="failed", accuracy=None)

    assert "| file | failed | - | 120 | 90 | 0 | processes left: 12 |" in rows(broken)[1]
    assert not broken.held
    assert not a_training(verdict="failed").held
    assert a_training().held


def test_ended_job_has_a_row_with_its_reason() -> None:
    """A report of jobs alone has no tables of trainings."""
    job = Ended("kill-loop", "a job", Store.SQLITE, "failed", 5, 9.4, "killed | by signal 9", ("tasks left: worker-0",))
    text = page(Circumstances("scripts/chaos", "2026-01-31", 2, 4.0), [], [job])

    row = "| a job | file | failed | 5 | 9 | killed / by signal 9 | tasks left: worker-0 |"
    assert f"| {JOBS['kill-loop'].what} {row}" in text
    assert "Cost of each fault" not in text
    assert not job.held


def test_busy_machine_is_noted() -> None:
    assert "busy with other work" in rows(a_training(), load=12.0)[0]
    assert "busy with other work" not in rows(a_training(), load=4.0)[0]


def test_sections_of_earlier_runs_stay_until_measured_again(tmp_path: Path) -> None:
    """A run of all faults takes an hour, one of partitions some minutes."""
    path, contained = tmp_path / "reliability.md", a_training(a_cost("master-cut"), store=Store.CONTAINERS)

    def measured(command: str, *trainings: Training) -> str:
        write(path, Circumstances(command, "2026-01-31", 2, 4.0, {"packet-delay": "no netem"}), trainings)
        return path.read_text()

    measured("run 1", a_training(a_cost("worker")))
    measured("run 2", contained)
    assert ["run 1", "run 2"] == re.findall(r"^    (run .)$", measured("run 2", contained), re.MULTILINE)
    assert ["run 3", "run 2"] == re.findall(r"^    (run .)$", measured("run 3", a_training()), re.MULTILINE)
    text = measured("run 4", a_training(a_cost("worker")), contained)

    assert ["run 4", "run 4"] == re.findall(r"^    (run .)$", text, re.MULTILINE)
    general, _, partitions = text.partition("## With containers")
    assert (1, 0) == (general.count(CATALOGUE["worker"].what), general.count(CATALOGUE["master-cut"].what))
    assert "| containers | succeeded |" in partitions
    partitions = partitions.replace("\n", " ")
    assert f"Not measured: {CATALOGUE['agent-containers'].what} (not in this run); " in partitions
    assert f"{CATALOGUE['packet-delay'].what} (no netem); " in partitions
