// Filter and sort. The pages are complete without this file.
"use strict";

function sortable(table) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.ariaLabel = `sort by ${head.textContent}`;
    head.append(button); // the name stays text: printed heads repeat text and no controls
    head.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      const rows = Array.from(body.rows, (row) => [key(row.cells[column], head), row]);
      rows.sort(([a], [b]) => (typeof a === "number" ? a - b : a.localeCompare(b)) * (down ? -1 : 1));
      body.append(...rows.map(([, row]) => row));
    });
  });
}

function key(cell, head) {
  const text = cell.dataset.value ?? cell.textContent.trim();
  const asNumber = head.dataset.sort === "number" || "value" in cell.dataset;
  return asNumber ? Number(text.replaceAll(",", "")) || 0 : text;
}

function filters(form) {
  const rows = Array.from(document.getElementById(form.dataset.filters).tBodies[0].rows);
  const apply = () => {
    const wanted = new FormData(form);
    const words = wanted.get("text").toLowerCase().split(/\s+/).filter(Boolean);
    let visible = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word)) &&
        ["severity", "contract", "verdict"].every((name) => !wanted.get(name) || row.dataset[name] === wanted.get(name));
      row.hidden = !fits;
      visible += fits;
    }
    form.querySelector("output").textContent = `${visible} of ${rows.length}`;
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

function copyable(block) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.querySelector("code").textContent);
    button.textContent = "copied";
  });
  block.append(button);
}

document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll("form.filters").forEach(filters);
document.querySelectorAll("pre.command").forEach(copyable);
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
