"""`nanoengine lessons`: bring stubs in step, grade answers, make a copy for students."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from nanoengine.course.display import Row, table
from nanoengine.course.errors import CourseError
from nanoengine.course.grading import grade, grading_session
from nanoengine.course.notebooks import release, sync
from nanoengine.course.registry import exercises
from nanoengine.course.result import Grade
from nanoengine.course.source import read_source
from nanoengine.course.work import Work, work_folder


def main(argv: Sequence[str]) -> int:
    """Run `nanoengine lessons ARGV...`; returns the exit status.

    0: done, nothing failed. 1: a failed answer, or a cell that is not in step. Raises CourseError
    for what does not exist.
    """
    args = _parser().parse_args(list(argv))
    run = {"sync": _sync, "grade": _grade, "release": _release}[args.action]
    return run(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nanoengine lessons", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    one = actions.add_parser("sync", help="write stubs into the notebooks' exercise cells")
    one.add_argument("folder", nargs="?", type=Path, default=Path("lessons"))
    one.add_argument("--check", action="store_true", help="change nothing; status 1 on drift")
    one = actions.add_parser("grade", help="grade saved answers, or a file")
    one.add_argument("ids", nargs="*", metavar="ID", help="exercises; none: all of them")
    one.add_argument("--file", type=Path, help="grade this file instead of the saved answer")
    one.add_argument("--json", action="store_true", help="print the grades as JSON")
    one = actions.add_parser("release", help="copy the lessons without outputs and answers")
    one.add_argument("target", type=Path, help="a new folder")
    one.add_argument("--lessons", type=Path, default=Path("lessons"))
    return parser


def _sync(args: argparse.Namespace) -> int:
    drifted = 0
    for path in sorted(args.folder.glob("*.ipynb")):
        report = sync(path, write=not args.check)
        drifted += len(report.drifted if args.check else report.refused)
        print(f"{path}: {report}")
    return 1 if drifted else 0


def _grade(args: argparse.Namespace) -> int:
    ids = args.ids or list(exercises)
    if args.file is not None and len(args.ids) != 1:
        raise CourseError("--file needs exactly one exercise id: whose answer is it?")
    work = Work(work_folder(Path.cwd()))
    results: list[Grade] = []
    rows = []
    with grading_session():
        for exercise_id in ids:
            exercise = exercises[exercise_id]
            path = args.file or work.path(exercise)
            if args.file is not None and not path.is_file():
                raise CourseError(f"there is no file {path}")
            text = read_source(path) if path.is_file() else ""
            result = grade(exercise.id, text)
            results.append(result)
            rows.append(Row(result.id, result.state, result.points, exercise.points, str(path)))
    if args.json:
        print(json.dumps([result.to_dict() for result in results], indent=1))
    else:
        for result in results:
            if result.state != "todo":
                print(result)
        print(table(rows, "Grades"))
    return 1 if any(result.state == "fail" for result in results) else 0


def _release(args: argparse.Namespace) -> int:
    names = release(args.lessons, args.target)
    print(f"{args.target}: {len(names)} files ({', '.join(names)})")
    return 0
