// The page: it reads server-sent states, and fetches curves, frames and texts when those say that there are new ones.
// Texts of a run are a stranger's: they become textContent, never markup.
import { element, ladder, matrix, times } from "./details.js";

const $ = (id) => document.getElementById(id);
const FRAMES_EACH = 200; // milliseconds
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C"]; // Okabe and Ito's
const ON_DARK = ["#56B4E9", "#E69F00", "#2FC79A", "#E3A0C8", "#FF8A3D", "#4A9BE8", "#B0B0B0"];
const STATES = { running: "running", out: "waited for", resting: "resting", lost: "lost", restarted: "restarted lately" };
const dark = matchMedia("(prefers-color-scheme: dark)");
let events = null, state = null, version = -1, selected = null, ended = false, drawing = false, shownAt = 0, retry = 0;
const refusals = new Map(); // why nothing is recorded, by the row that was asked for; null: all
let chosen = false; // whether somebody has chosen how much is smoothed

function put(id, text) { // leaves a selection and the scroll alone where nothing changed
  if ($(id).textContent !== text) $(id).textContent = text;
}

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// -- states ----------------------------------------------------------------------------------------------------------

function look() {
  if (events) events.close();
  if (ended || document.hidden) return;
  events = new EventSource(selected === null ? "events" : `events?row=${selected}`);
  events.addEventListener("state", (event) => { retry = 0; $("over").hidden = true; show(JSON.parse(event.data)); });
  events.addEventListener("ended", () => {
    ended = true;
    events.close();
    if (state.status === "running") badge("the program has ended", "other");
    over();
  });
  events.onerror = () => {
    events.close();
    if (ended) return;
    if (retry++ < 3) setTimeout(look, 1000);
    else {
      badge(state && state.status === "finished" ? "finished" : "the program has ended", "other");
      over();
    }
  };
}

function over() { // nothing is renewed any more
  $("over").hidden = false;
  put("over", `This page shows the last state: the program has ended. ${state ? state.again : ""}`);
}

function badge(text, kind) {
  put("status", text);
  $("status").dataset.kind = kind;
}

function show(next) {
  state = next;
  document.title = `${state.title} – vecwrap`;
  put("title", state.title);
  put("env", state.env);
  badge(state.status || "unknown", ["running", "finished"].includes(state.status) ? state.status : "other");
  $("trouble").hidden = !state.trouble;
  put("trouble", state.trouble || "");
  figures(state.figures);
  $("live").hidden = !state.live;
  if (state.live) rows(state);
  if (state.version !== version) {
    version = state.version;
    draw();
    describe();
  }
}

function figures(pairs) {
  const list = $("figures");
  if (list.children.length !== pairs.length) {
    list.replaceChildren(...pairs.map(() => {
      const box = element("div");
      box.append(element("dt"), element("dd"));
      return box;
    }));
  }
  pairs.forEach(([name, value], i) => {
    const [dt, dd] = list.children[i].children;
    if (dt.textContent !== name) dt.textContent = name;
    if (dd.textContent !== value) dd.textContent = value;
  });
}

async function describe() {
  let about;
  try { about = await get("about"); } catch { return; }
  put("plan", about.plan || "");
  $("plan-part").hidden = !about.plan;
  $("versions-part").hidden = !about.versions.length;
  $("versions").replaceChildren(...about.versions.map(([name, text]) => {
    const row = element("tr");
    row.append(element("th", name, { scope: "row" }), element("td", text));
    return row;
  }));
  const picture = $("picture");
  picture.hidden = !about.picture;
  if (about.picture) picture.src = `file/${encodeURI(about.picture)}?v=${version}`;
  $("videos").replaceChildren(...about.videos.map((name) => {
    const item = element("li");
    const play = element("button", name, { type: "button" });
    play.addEventListener("click", () => film(name));
    item.append(play);
    return item;
  }));
  $("files").hidden = !about.picture && !about.videos.length;
  leaderboard(about.leaderboard);
}

function film(name) {
  const film = $("film");
  film.hidden = false;
  film.src = `file/${name.split("/").map(encodeURIComponent).join("/")}`;
  put("film-name", name);
  film.play().catch(() => {}); // a browser may want another click, or a newer one came
  film.scrollIntoView({ block: "nearest" });
}

function leaderboard(found) {
  $("leaderboard").hidden = !found;
  if (!found) return;
  put("leaderboard-words", (found.about ? `${found.about}. ` : "")
    + "In the matrix, the mean result of the row against the column: 1 for a win, 0.5 for a draw."
    + (found.left_out ? ` ${found.left_out} players are left out.` : ""));
  ladder($("ladder"), found);
  matrix($("matrix"), found);
  ratings(found);
}

function ratings(found) { // of snapshots, over the steps that they were trained for
  const points = found.over_steps;
  $("ratings").hidden = points.length < 2;
  if (points.length < 2) return;
  if (!window.Plotly) { setTimeout(() => ratings(found), 300); return; }
  const colour = (dark.matches ? ON_DARK : COLOURS)[0];
  const errors = points.map(([, , error]) => error || 0);
  const trace = { x: points.map(([steps]) => steps), y: points.map(([, rating]) => rating), text: points.map((point) => plain(point[3])),
    error_y: { type: "data", array: errors, color: colour, thickness: 1, width: 0 }, mode: "lines+markers", type: "scatter",
    line: { color: colour }, hoverinfo: "x+y+text" };
  Plotly.react("ratings", [trace], layout("steps", `Elo points above ${plain(found.anchor)}`), SETTINGS);
}

// -- curves ----------------------------------------------------------------------------------------------------------

const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); // Plotly reads markup

async function draw() {
  if (!window.Plotly || drawing) { setTimeout(draw, 300); return; }
  drawing = true;
  try {
    if (!chosen) $("smooth").value = String([100, 30].find((window) => window * 10 <= state.games) || 10);
    const x = document.querySelector("#axes input:checked").value;
    const data = await get(`curves?x=${x}&smooth=${$("smooth").value}`);
    if (data.runs.length) plot(data);
    words(data);
  } catch { /* the server is gone, which the badge says */ } finally { drawing = false; }
}

function words(data) {
  if (!data.runs.length) { put("chart-words", "No episode has ended yet."); return; }
  const lines = data.runs.some((run) => run.line), quantiles = data.runs.some((run) => run.quantiles);
  put("chart-words", "Dots are episodes" + (innerWidth < 520 ? "." : "; drag to zoom, double-click for all.") + (lines
    ? ` The line is the mean of the last ${data.window}` + (quantiles
      ? ", the dashed line the median of the sub-environments, the band from their 10 % to their 90 % quantile."
      : ", the band one standard deviation.")
    : ` There are fewer than ${data.window}, so no mean yet.`)
    + (data.left_out ? ` ${data.left_out} runs are left out.` : ""));
}

function plot(data) {
  const colours = dark.matches ? ON_DARK : COLOURS;
  const traces = [];
  data.runs.forEach((run, i) => {
    const colour = colours[i % colours.length], name = plain(run.name);
    const common = { legendgroup: String(i), hoverinfo: "skip" };
    traces.push({ ...common, x: run.dots.x, y: run.dots.y, mode: "markers", type: "scatter", showlegend: !run.line, name,
      marker: { color: colour, size: run.line ? 4 : 8, opacity: run.line ? 0.3 : 0.85 }, hoverinfo: "x+y" });
    if (!run.line) return;
    const band = run.quantiles
      ? { x: run.quantiles.x, low: run.quantiles.q10, high: run.quantiles.q90 } : run.line;
    traces.push({ ...common, x: band.x, y: band.low, mode: "lines", line: { width: 0 }, showlegend: false });
    traces.push({ ...common, x: band.x, y: band.high, mode: "lines", line: { width: 0 }, fill: "tonexty",
      fillcolor: `${colour}33`, showlegend: false });
    if (run.quantiles) traces.push({ ...common, x: run.quantiles.x, y: run.quantiles.q50, mode: "lines",
      line: { color: colour, width: 1.2, dash: "dash" }, showlegend: false });
    traces.push({ ...common, x: run.line.x, y: run.line.mean, mode: "lines", line: { color: colour, width: 2.4 }, name,
      showlegend: true, hoverinfo: "x+y+name" });
  });
  $("chart").hidden = false; // before, so that its width is known
  Plotly.react("chart", traces, { ...layout(plain(data.unit), "score"), showlegend: data.runs.length > 1,
    legend: { orientation: "h", y: 1.12 }, uirevision: data.unit }, SETTINGS);
}

const SETTINGS = { responsive: true, displayModeBar: false }; // its toolbar would lie on the curves

function layout(x, y) { // of a chart, in the page's own colours
  const style = getComputedStyle(document.body);
  const line = getComputedStyle($("chart").parentElement).borderTopColor;
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, fixedrange: innerWidth < 520 };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", autosize: true,
    font: { color: style.color, family: style.fontFamily, size: 12 }, margin: { l: 46, r: 12, t: 10, b: 40 },
    xaxis: { ...axis, title: { text: x }, rangemode: "tozero" }, yaxis: { ...axis, title: { text: y } },
  };
}

// -- rows and frames -------------------------------------------------------------------------------------------------

function rows(now) {
  const strip = $("rows");
  if (strip.children.length !== now.rows.length) strip.replaceChildren(...now.rows.map(() => element("i")));
  const counts = {};
  now.rows.forEach((row, i) => {
    strip.children[i].dataset.state = row.state;
    strip.children[i].title = `${label(row)} · ${STATES[row.state] || row.state}`;
    counts[row.state] = (counts[row.state] || 0) + 1;
  });
  $("legend").replaceChildren(...Object.keys(counts).flatMap((name) =>
    [element("i", undefined, { "data-state": name }), `${counts[name]} ${STATES[name] || name}`]));
  const reasons = new Map();
  for (const row of now.rows.filter((one) => one.reason)) {
    const text = `${row.restarts} ${row.restarts === 1 ? "restart" : "restarts"}; ${row.reason}`;
    reasons.set(text, [...(reasons.get(text) || []), `#${row.row}`]);
  }
  $("restarts").hidden = !reasons.size;
  const lines = [...reasons].slice(0, 50).map(([text, names]) => `${names.slice(0, 12).join(" ")}: ${text}`);
  if (lines.join("\n") !== $("reasons").dataset.shown) {
    $("reasons").dataset.shown = lines.join("\n");
    $("reasons").replaceChildren(...lines.map((text) => element("li", text)));
  }
  $("save").hidden = !now.frames;
  $("no-frames").hidden = Boolean(now.frames);
  put("no-frames", now.frames ? "" : now.why_no_frames || "");
  tiles(now);
  $("times-part").hidden = !now.times.length;
  if (now.times.length) times($("times"), now.times);
  put("remark", now.remark || "");
  recordings(now.recordings || []);
  if (selected !== null && now.last) last(now.last);
}

function recordings(all) {
  const text = (one) => `#${one.row}: ${one.text}`, shown = all.map((one) => `${text(one)} ${one.file}`).join("\n");
  const newest = all.filter((one) => one.row === selected).pop();
  put("recording-one", refusals.get(selected) || (newest ? newest.text : ""));
  $("record-why").hidden = !refusals.has(null);
  put("record-why", refusals.get(null) || "");
  $("recordings").hidden = !all.length;
  if ($("recordings").dataset.shown === shown) return;
  $("recordings").dataset.shown = shown;
  $("recordings").replaceChildren(...all.toReversed().map((one) => {
    const item = element("li");
    item.append(one.file ? element("a", text(one), { href: `file/${one.file.split("/").map(encodeURIComponent).join("/")}`,
      target: "_blank", rel: "noopener" }) : text(one));
    return item;
  }));
}

async function record(row) { // the row's next episode, or all rows'
  let why = "The program has ended.";
  try { why = (await (await fetch(row === null ? "record" : `record?row=${row}`, { method: "POST" })).json()).why; } catch { /* it is gone */ }
  refusals.delete(row);
  if (why) refusals.set(row, why);
  recordings((state && state.recordings) || []);
}

const lives = (row) => (row.lives === null ? "" : `${row.lives} ${row.lives === 1 ? "life" : "lives"}`);
const label = (row) => [`#${row.row}`, [row.agent, row.plays].filter(Boolean).join(" "), row.score === null ? "" : `score ${row.score}`,
  row.length === null ? "" : `${row.length} ${row.length === 1 ? "step" : "steps"}`, lives(row)].filter(Boolean).join(" · ");

function columns(width, shown, squarish) { // all in a row, or as the picture of all has them, or as many as fit
  const fit = Math.floor(width / (width < 480 ? 100 : 150));
  return shown <= fit ? Math.max(shown, Math.min(fit, 4)) : squarish <= fit ? squarish : Math.max(2, fit);
}

function tiles(now) {
  const box = $("tiles"), shown = now.frames ? now.frames.rows : [];
  if (box.children.length !== shown.length) {
    box.replaceChildren(...shown.map(() => {
      const tile = element("button", undefined, { type: "button" });
      const head = element("span", undefined, { class: "label" });
      head.append(element("span"), element("span"));
      tile.append(head, element("span", undefined, { class: "plays" }), element("canvas"));
      tile.addEventListener("click", () => enlarge(Number(tile.dataset.row)));
      return tile;
    }));
  }
  if (shown.length) box.style.gridTemplateColumns =
    `repeat(${columns(box.clientWidth, shown.length, now.frames.columns)}, minmax(0, 1fr))`;
  shown.forEach((i, k) => {
    const tile = box.children[k], row = now.rows[i];
    tile.dataset.state = row.state;
    tile.dataset.row = i;
    const [name, length] = tile.firstChild.children;
    const plays = tile.children[1];
    plays.textContent = [lives(row), row.plays].filter(Boolean).join(" · ");
    plays.hidden = !plays.textContent;
    name.textContent = [`#${row.row}`, row.agent, row.score === null ? "" : `score ${row.score}`].filter(Boolean).join(" ");
    length.textContent = row.length === null ? "" : row.length;
    tile.setAttribute("aria-label", label(row));
    tile.title = label(row);
  });
  $("large-title").textContent = selected === null || !now.rows[selected] ? "" : label(now.rows[selected]);
}

async function frames() {
  const due = shownAt + FRAMES_EACH - performance.now();
  if (state && state.frames && !ended && !retry && !document.hidden) {
    shownAt = performance.now();
    try {
      const answer = await fetch("frame");
      if (answer.status === 200) {
        const image = await createImageBitmap(await answer.blob());
        const { columns, rows: shown } = state.frames, lines = Math.ceil(shown.length / columns);
        const width = image.width / columns, height = image.height / lines;
        [...$("tiles").children].forEach((tile, k) =>
          crop(tile.lastChild, image, (k % columns) * width, Math.floor(k / columns) * height, width, height));
        image.close();
      }
      if (selected !== null) {
        const one = await fetch(`frame?row=${selected}`);
        if (one.status === 200) {
          const image = await createImageBitmap(await one.blob());
          crop($("large-frame"), image, 0, 0, image.width, image.height);
          image.close();
        }
      }
    } catch { /* the server is gone, which the badge says */ }
  }
  setTimeout(frames, Math.max(20, due));
}

function crop(canvas, image, left, top, width, height) {
  if (canvas.width !== Math.round(width)) canvas.width = Math.round(width);
  if (canvas.height !== Math.round(height)) canvas.height = Math.round(height);
  canvas.getContext("2d").drawImage(image, left, top, width, height, 0, 0, canvas.width, canvas.height);
}

function enlarge(row) {
  selected = row;
  $("last").replaceChildren();
  $("save-one").href = `frame?row=${row}`;
  $("save-one").download = `tile-${row}.png`;
  $("large").showModal();
  look();
}

function last(steps) {
  const head = element("tr");
  head.append(...["action", "reward", "ending"].map((name) => element("th", name, { scope: "col" })));
  $("last").replaceChildren(head, ...steps.map((step) => {
    const line = element("tr");
    line.append(...step.map((text) => element("td", text)));
    return line;
  }));
}

$("record").addEventListener("click", () => record(null));
$("record-one").addEventListener("click", () => record(selected));
$("close").addEventListener("click", () => $("large").close());
$("large").addEventListener("close", () => { selected = null; look(); });
$("axes").addEventListener("change", draw);
$("smooth").addEventListener("change", () => { chosen = true; draw(); });
dark.addEventListener("change", draw);
document.addEventListener("visibilitychange", look);
look();
frames();
