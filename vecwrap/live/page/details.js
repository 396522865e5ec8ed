// Where the time of a step goes, and the leaderboard. Names are a stranger's: textContent, no markup.

export function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function line(cells, kind = "td") {
  const row = element("tr");
  row.append(...cells.map((cell) => (cell instanceof Node ? cell : element(kind, cell))));
  return row;
}

function bar(share) {
  const cell = element("td", undefined, { class: "bar-cell", "aria-hidden": "true" }), filled = element("i");
  filled.style.width = `${Math.max(1, 100 * share)}%`;
  cell.append(filled);
  return cell;
}

function duration(microseconds) {
  return microseconds >= 1000 ? `${(microseconds / 1000).toPrecision(3)} ms` : `${microseconds.toPrecision(3)} µs`;
}

export function times(table, parts) {
  const whole = parts.reduce((sum, [, , value]) => sum + value, 0);
  const total = line([element("th", "a vector step", { scope: "row" }), "", "", duration(whole)]);
  table.replaceChildren(...parts.map(([name, what, value]) => {
    const head = element("th", name, { scope: "row" });
    head.append(element("small", what));
    return line([head, bar(value / whole), `${Math.round((100 * value) / whole)} %`, duration(value)]);
  }), total);
}

const rated = (points) => (points === null ? "–" : `${points > 0 ? "+" : ""}${Math.round(points)}`);

export function ladder(table, { players }) {
  const head = ["player", "rating", "error", "won", "drawn", "lost"].map((name) => element("th", name, { scope: "col" }));
  table.replaceChildren(line(head), ...players.map(([name, points, error, won, drawn, lost]) => line([
    element("th", name, { scope: "row" }), rated(points), points === null || !error ? "" : `± ${Math.round(error)}`,
    ...[won, drawn, lost].map((games) => games.toLocaleString("en")),
  ])));
}

export function matrix(table, { players, matrix: lines }) { // blue for 1, white for 0.5, orange for 0
  const names = players.map(([name]) => name);
  const head = line([element("td"), ...names.map((name) => {
    const cell = element("th", undefined, { scope: "col" });
    cell.append(element("span", name));
    return cell;
  })]);
  table.replaceChildren(head, ...lines.map(([i, cells]) => line([element("th", names[i], { scope: "row" }),
    ...cells.map(([score, games], j) => {
      const cell = element("td", games ? score.toFixed(2) : "");
      if (games) {
        const share = Math.round(200 * Math.abs(score - 0.5));
        cell.style.background = `color-mix(in srgb, var(${score > 0.5 ? "--won" : "--lost"}) ${share}%, var(--card))`;
        if (share > 75) cell.style.color = "var(--card)";
        cell.title = `${names[i]} against ${names[j]}: ${score.toFixed(3)} in ${games.toLocaleString("en")} games`;
      }
      return cell;
    })])));
}
