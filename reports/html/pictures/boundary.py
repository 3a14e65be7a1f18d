"""Token axis: committed steps, grid boundaries, the step chosen and the step expected."""

from __future__ import annotations

from typing import Any

from oracle.legal import Between, describe
from reports.html.pictures import plain
from reports.html.pictures.scene import NOT_OBSERVED, Picture, Scene, tokens
from reports.html.svg import Canvas

NONE = -1
WIDTH, HEIGHT, GAP = 98, 46, 12
TOP = 86
EDGE = 2  # steps shown beside a place of interest
REJECTED = 3  # rejected drafts shown


def checkpoint(scene: Scene) -> Picture | None:
    """commit.checkpoint_steps: which state must become current and which is kept."""
    case = scene.case
    if not case.requests:
        what = case.situation.replace("_", " ")
        made = "made one" if scene.observed.get("commits") else "did something else"
        return Picture(None, (f"Nothing may be committed here ({what}); production {made}.",))
    path = case.requests[scene.request].path if case.form == "tree" else None
    return _picture(scene, case.draft_tokens, path, case.tracking)


def round_of(scene: Scene) -> Picture | None:
    """commit.call_order: the same axis for the round of a worker."""
    if not scene.case.requests:
        return None
    return _picture(scene, scene.case.draft_tokens, None, scene.case.tracking)


def filed(scene: Scene) -> Picture | None:
    """commit.track_slots: the axis ends where the retained tokens end."""
    if not scene.case.requests:
        return None
    r = scene.case.requests[scene.request]
    story = [*_crossing(scene, r.retained), *plain.sentences(scene)]
    return Picture(_axis(scene, r.retained, scene.case.draft_tokens, None, {}), tuple(story))


def _picture(scene: Scene, draft_tokens: int, path: tuple[int, ...] | None, tracking: bool) -> Picture:
    i = scene.request
    r = scene.case.requests[i]
    marks: dict[str, tuple[int | None, str]] = {}
    field = scene.field if scene.field in ("current_step", "checkpoint_step") else "checkpoint_step"
    for who, value in (("must", scene.expected(field, i)), ("production", scene.saw(field, i))):
        if type(value) is int and value != NONE:
            marks[who] = (_column(value, path, draft_tokens), _word(field, who))
    story = _crossing(scene, r.committed)
    if not tracking:
        story.append("The batch tracks no checkpoints, so none may be saved.")
    elif r.track_slot == NONE:
        story.append("The request has no slot for a checkpoint, so none may be saved.")
    story += _verdict(scene, field, path)
    return Picture(_axis(scene, r.committed, draft_tokens, path, marks), tuple(story))


def _crossing(scene: Scene, count: int) -> list[str]:
    r, grid = scene.case.requests[scene.request], scene.case.grid
    post = r.pre + count
    story = [
        f"Request {scene.request} has {tokens(r.pre)} in its recurrent state and commits {count} more, "
        f"so it ends at {post:,}.",
    ]
    last = post // grid * grid
    if last > r.pre:
        at = "exactly" if last == post else "on its way"
        story.append(
            f"It reaches length {last:,} {at}; that is a checkpoint boundary (the grid is {grid:,} tokens). "
            f"The state after {last:,} tokens is the one of verify step {last - r.pre - 1}."
        )
    else:
        story.append(
            f"It crosses no checkpoint boundary: the grid is {grid:,} tokens and the next is at {last + grid:,}."
        )
    return story


def _verdict(scene: Scene, field: str, path: tuple[int, ...] | None) -> list[str]:
    """What must be and what production did, as two sentences."""
    i = scene.request
    must, seen = scene.expected(field, i), scene.saw(field, i)
    what = "as the checkpoint" if field == "checkpoint_step" else "as the current state"
    node = "node" if path is not None else "step"

    def kept(value: Any) -> str:
        return "nothing" if value == NONE else f"the state of {node} {value}"

    if scene.field not in ("current_step", "checkpoint_step"):
        return plain.sentences(scene)
    if must is NOT_OBSERVED:
        return []
    if isinstance(must, Between):
        said = f"Hostile input: any {node} inside the block, or none, is fine ({describe(must)})."
        return [said, f"Production took {seen}." if seen is not NOT_OBSERVED else ""]
    said = [f"So {kept(must)} must be saved {what}."]
    if seen is not NOT_OBSERVED:
        said.append(f"Production saves {kept(seen)}.")
    return said


def _word(field: str, who: str) -> str:
    saved = "checkpoint" if field == "checkpoint_step" else "current state"
    return f"must be the {saved}" if who == "must" else f"production's {saved}"


def _column(value: int, path: tuple[int, ...] | None, draft_tokens: int) -> int | None:
    """The path step whose state ``value`` names; ``None`` when it is off the path."""
    if path is None:
        return value if 0 <= value < draft_tokens else None
    return path.index(value) if value in path else None


def _axis(
    scene: Scene, count: int, draft_tokens: int, path: tuple[int, ...] | None, marks: dict[str, tuple[int | None, str]]
) -> Any:
    canvas = Canvas()
    r, grid = scene.case.requests[scene.request], scene.case.grid
    canvas.text(0, 14, f"request {scene.request}: one verify block of {tokens(draft_tokens)}", "strong")
    hint = "each box is the state after one more token; dashed lines are checkpoint boundaries"
    canvas.text(0, 33, hint, "note", most=100)
    x = 0.0
    x = _state(canvas, x, "before", r.pre, "box before")
    if r.pre > 0 and r.pre % grid == 0:
        x = _line(canvas, x, r.pre, "saved earlier")
    at: dict[int, float] = {}
    last = None
    chosen = [c for c, _ in marks.values() if c is not None]
    for step in _shown(r.pre, count, grid, chosen, min(draft_tokens, count + REJECTED)):
        if last is not None and step != last + 1:
            canvas.text(x + 4, TOP + 28, "…", "strong")
            x += 26
        label = f"step {step}" if path is None or step >= count else f"step {step}, node {path[step]}"
        at[step] = x + WIDTH / 2
        length = r.pre + step + 1
        x = _state(canvas, x, label, length, "box kept" if step < count else "box rejected")
        if step < count and length % grid == 0:
            x = _line(canvas, x, length, "boundary")
        last = step
    _brace(canvas, [at[s] for s in at if s < count], "committed", TOP - 22)
    _brace(canvas, [at[s] for s in at if s >= count], "not accepted", TOP - 22)
    y = TOP + HEIGHT + 26
    for who, look in (("must", "good"), ("production", "bad")):
        column, words = marks.get(who, (None, ""))
        if column is not None and column in at:
            canvas.arrow(at[column], y + 14, at[column], TOP + HEIGHT + 3, f"line {look}")
            canvas.text(at[column], y + 28, words, look, "middle" if at[column] > 90 else "start")
            y += 34
        elif who == "production" and scene.field in ("current_step", "checkpoint_step"):
            canvas.text(WIDTH + GAP, y + 28, _absent(scene), "bad")
            y += 34
    what = f"{r.pre} tokens before, {count} committed, grid {grid}"
    return canvas.markup(f"Token axis of request {scene.request}: {what}")


def _absent(scene: Scene) -> str:
    seen = scene.saw(scene.field, scene.request)
    if seen is NOT_OBSERVED:
        return "✗ what production saved was not recorded"
    return "✗ production saves nothing" if seen == NONE else f"✗ production takes {seen}, which is not on this path"


def _state(canvas: Canvas, x: float, label: str, length: int, look: str) -> float:
    canvas.text(x + WIDTH / 2, TOP - 6, label, "note", "middle")
    canvas.box(x, TOP, WIDTH, HEIGHT, look)
    canvas.text(x + WIDTH / 2, TOP + 20, "after", "note", "middle")
    canvas.text(x + WIDTH / 2, TOP + 37, length, "strong", "middle")
    return x + max(WIDTH, len(str(length)) * 8) + GAP


def _line(canvas: Canvas, x: float, length: int, word: str) -> float:
    canvas.line(x, TOP - 4, x, TOP + HEIGHT + 18, "line grid")
    canvas.text(x + 5, TOP + HEIGHT + 18, f"{word} {length}", "note")
    return x + GAP


def _brace(canvas: Canvas, centres: list[float], word: str, y: float) -> None:
    if centres:
        canvas.line(centres[0] - WIDTH / 2 + 2, y, centres[-1] + WIDTH / 2 - 2, y, "line")
        canvas.text(centres[0] - WIDTH / 2 + 2, y - 5, word, "note")


def _shown(pre: int, count: int, grid: int, chosen: list[int], end: int) -> list[int]:
    """Steps worth a box: the ends, the boundaries' and those that anybody chose."""
    boundary = (pre + count) // grid * grid - pre - 1
    places = [0, count - 1, end - 1, boundary, *chosen]
    near = {s + d for s in places for d in range(-EDGE, EDGE + 1)}
    return sorted(s for s in near if 0 <= s < end)
