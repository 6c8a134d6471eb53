// Dragging over a chart chooses the period of all charts of the page; it is part of the URL.
export function startCharts() {
  document.addEventListener("pointerdown", (event) => {
    const svg = event.target.closest?.(".chart svg");
    if (svg && event.button === 0) drag(svg, event);
  });
}

function drag(svg, begun) {
  const figure = svg.closest(".chart");
  const box = svg.getBoundingClientRect();
  const width = svg.viewBox.baseVal.width;
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  mark.setAttribute("class", "drag");
  mark.setAttribute("height", svg.viewBox.baseVal.height);
  svg.append(mark);
  const share = (event) => Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  const from = share(begun);
  const moved = (event) => {
    mark.setAttribute("x", Math.min(from, share(event)) * width);
    mark.setAttribute("width", Math.abs(share(event) - from) * width);
  };
  const ended = (event) => {
    removeEventListener("pointermove", moved);
    mark.remove();
    if (Math.abs(share(event) - from) > 0.02) zoom(figure, Math.min(from, share(event)), Math.max(from, share(event)));
  };
  addEventListener("pointermove", moved);
  addEventListener("pointerup", ended, { once: true });
}

function zoom(figure, left, right) {
  const since = Number(figure.dataset.since);
  const length = Number(figure.dataset.until) - since;
  const url = new URL(location.href);
  url.searchParams.delete("range");
  url.searchParams.set("from", Math.floor(since + left * length));
  url.searchParams.set("to", Math.ceil(since + right * length));
  location.assign(url);
}
