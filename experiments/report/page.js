// Selects and a search choose rows of the table and lines of the charts; headings sort the rows.
"use strict";

const table = document.querySelector("#settings");
const rows = table ? [...table.tBodies[0].rows] : [];
const selects = [...document.querySelectorAll("select[data-column]")];
const search = document.querySelector("#search");
const answer = document.querySelector("#answer");
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function charts(tag) {
  const roots = window.Bokeh ? Bokeh.documents.flatMap((document) => document.roots()) : [];
  return roots.filter((root) => root.tags.includes(tag));
}

function renderers(chart, name) {
  return chart.renderers.filter((renderer) => renderer.name === name);
}

function isChosen(row) {
  for (const select of selects) {
    const { column } = select.dataset;
    const setting = row.cells[column].textContent;
    if (select.value === "best" ? !("best" in row.dataset) : select.value && select.value !== setting) return false;
  }
  return row.textContent.toLowerCase().includes(search.value.trim().toLowerCase());
}

function choose() {
  for (const row of rows) row.hidden = !isChosen(row);
  const shown = rows.filter((row) => !row.hidden).sort((one, other) => one.dataset.rank - other.dataset.rank);
  for (const chart of charts("curves")) {
    const [line] = renderers(chart, "line");
    line.view.filter.indices = shown.map((row) => Number(row.dataset.rank));
  }
  showAnswer(shown);
}

// The first of the rows that are shown, and the next of another method; the text says whether the seeds tell them apart.
function showAnswer(shown) {
  if (!answer) return;
  const [first, ...others] = shown;
  const second = others.find((row) => row.dataset.group !== first.dataset.group) || others[0];
  answer.replaceChildren();
  const write = (text, tag) => {
    const part = document.createElement(tag || "span");
    part.textContent = text;
    answer.append(part);
  };
  if (!first || !first.dataset.low) {
    write(`${answer.dataset.lead}: none of these.`);
    return;
  }
  write(`${answer.dataset.lead}: `);
  write(first.dataset.name, "strong");
  write(`, ${first.dataset.value}. `);
  if (!second || !second.dataset.low) return;
  const apart = Number(first.dataset.high) < Number(second.dataset.low) || Number(second.dataset.high) < Number(first.dataset.low);
  const relation = apart ? "Next" : "Their intervals overlap: these seeds do not tell it from the next";
  write(`${relation}: ${second.dataset.name}, ${second.dataset.value}.`);
}

function sort(heading) {
  const column = heading.cellIndex;
  const ascending = heading.getAttribute("aria-sort") !== "ascending";
  const key = (row) => {
    const { sort: number } = row.cells[column].dataset;
    return number === undefined ? row.cells[column].textContent : Number(number);
  };
  const compare = (one, other) => {
    const [left, right] = [key(one), key(other)];
    const both = typeof left === "number" ? left - right : left.localeCompare(right, undefined, { numeric: true });
    return ascending ? both : -both;
  };
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  table.tBodies[0].append(...[...rows].sort(compare));
}

// A row under the pointer, or with the focus, lights up its line.
function lightUp(row) {
  for (const chart of charts("curves")) {
    const [line] = renderers(chart, "line");
    line.data_source.selected.indices = row ? [Number(row.dataset.rank)] : [];
  }
}

function setAxis(axis, title) {
  for (const chart of charts("curves")) {
    for (const [name, prefix] of [["line", ""], ["band", "outline "]]) {
      const [{ glyph }] = renderers(chart, name);
      glyph.xs = { field: `${prefix}x ${axis}` };
      glyph.ys = { field: `${prefix}y ${axis}` };
    }
    chart.below[0].axis_label = title;
  }
}

function showTimeline(index) {
  for (const chart of charts("timeline")) {
    for (const renderer of chart.renderers) renderer.visible = renderer.name === `run ${index}`;
    const windows = chart.tags[1];
    const [end, workers] = windows[index];
    Object.assign(chart.x_range, { start: 0, end });
    Object.assign(chart.y_range, { start: workers - 0.4, end: -0.6 });
  }
}

function paint() {
  const css = getComputedStyle(document.documentElement);
  const colour = (name) => css.getPropertyValue(name).trim();
  for (const chart of [...charts("curves"), ...charts("timeline")]) {
    for (const axis of [...chart.below, ...chart.left]) {
      Object.assign(axis, { axis_label_text_color: colour("--text"), major_label_text_color: colour("--soft") });
      Object.assign(axis, { axis_line_color: colour("--line"), major_tick_line_color: colour("--line"), minor_tick_line_color: null });
    }
    for (const grid of chart.center.filter((part) => part.type === "Grid")) grid.grid_line_color = colour("--line");
    for (const bar of chart.right) {
      Object.assign(bar, { title_text_color: colour("--text"), major_label_text_color: colour("--soft"), background_fill_color: null });
    }
  }
}

function connect() {
  for (const select of selects) select.addEventListener("change", choose);
  if (search) search.addEventListener("input", choose);
  if (table) {
    for (const heading of table.tHead.rows[0].cells) heading.querySelector("button").addEventListener("click", () => sort(heading));
    for (const row of rows) {
      row.addEventListener("pointerenter", () => lightUp(row));
      row.addEventListener("pointerleave", () => lightUp(null));
    }
    choose();
  }
  const axis = document.querySelector("#axis");
  if (axis) axis.addEventListener("change", () => setAxis(axis.value, axis.selectedOptions[0].textContent));
  const run = document.querySelector("#run");
  if (run) run.addEventListener("change", () => showTimeline(Number(run.value)));
  dark.addEventListener("change", paint);
  paint();
  document.documentElement.dataset.ready = "";
}

// Bokeh makes its charts when the page is complete.
function whenDrawn() {
  if (charts("timeline").length) connect();
  else setTimeout(whenDrawn, 20);
}
whenDrawn();
