"""A draft chain beside the target's predictions: how far it is accepted."""

from __future__ import annotations

from reports.html.pictures import plain
from reports.html.pictures.scene import Picture, Scene
from reports.html.svg import Canvas

WIDTH, HEIGHT, LEFT = 74, 32, 150
AROUND = 5  # positions shown on both sides of a place of interest


def greedy_chain(scene: Scene) -> Picture | None:
    """verify.greedy_chain: draft j + 1 stands above the prediction that judges it."""
    i = scene.request
    r = scene.case.requests[i]
    accepted = scene.outcome["accepted"][i]
    seen = scene.saw_number("accepted", i)
    if seen is None and (emitted := scene.saw_numbers("emitted", i)) is not None:
        seen = len(emitted) - 1
    canvas = Canvas()
    canvas.text(0, 14, f"request {i}: each draft token is compared with the target's own choice there", "strong")
    for y, word in ((60, "draft token"), (112, "target's choice")):
        canvas.text(0, y, word, "note")
    x, at, last = float(LEFT), {}, -1
    places = [0, accepted, len(r.block) - 1, *([] if seen is None else [seen])]
    for j in sorted({p + d for p in places for d in range(-AROUND, AROUND + 1) if 0 <= p + d < len(r.block)}):
        if j != last + 1:
            canvas.text(x, 60, "…", "strong")
            x += 24
        draft = r.block[j + 1] if j + 1 < len(r.block) else None
        same = draft == r.predicted[j]
        if draft is not None:
            canvas.box(x, 39, WIDTH - 10, HEIGHT, "box kept" if j < accepted else "box rejected")
            canvas.text(x + WIDTH / 2 - 5, 60, draft, "", "middle", 8)
            canvas.text(x + WIDTH / 2 - 5, 86, "=" if same else "≠", "good" if same else "bad", "middle")
        canvas.box(x, 91, WIDTH - 10, HEIGHT, "box before" if j == accepted else "box")
        canvas.text(x + WIDTH / 2 - 5, 112, r.predicted[j], "", "middle", 8)
        at[j], x, last = x, x + WIDTH, j
    y = 150
    for count, words, look in ((accepted, "must accept", "good"), (seen, "production accepts", "bad")):
        if count is not None and (count == 0 or count - 1 in at):
            end = at[count - 1] + WIDTH - 10 if count else LEFT + 2
            canvas.line(LEFT, y - 4, end, y - 4, f"line {look}")
            canvas.text(LEFT, y + 12, f"{words} {count}", look)
            y += 32
    story = [
        f"The target agrees with the first {accepted} of {len(r.block) - 1} draft tokens of request {i}.",
        f"So {accepted} are accepted, and the target's own choice there, token {r.predicted[accepted]}, "
        "is emitted after them.",
        *plain.sentences(scene),
    ]
    return Picture(canvas.markup(f"Draft chain of request {i}"), tuple(story))
