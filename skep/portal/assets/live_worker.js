// One event stream for all tabs of a browser: it watches what any visible tab watches, and tells
// each tab only that its own things changed. It rests when no tab is visible.
const LIMIT = 20;
const tabs = new Map();
let source = null, opened = "";

onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => {
    if (data.gone) tabs.delete(port);
    else tabs.set(port, data.watches);
    open(data.url);
  };
};

function open(url) {
  const watches = [...new Set([...tabs.values()].flat())].slice(0, LIMIT);
  const query = watches.map((one) => `watch=${encodeURIComponent(one)}`).join("&");
  if (query === opened && source && source.readyState !== 2) return;
  source?.close();
  source = null;
  opened = query;
  if (!query) return;
  source = new EventSource(`${url}?${query}`);
  source.onopen = () => tell({ state: "live" });
  source.onerror = () => {
    tell({ state: "offline" });
    // A refused stream (a session that ended, a center that is gone) is tried again later.
    if (source?.readyState === 2) setTimeout(() => { if (opened === query) { opened = ""; open(url); } }, 3000);
  };
  for (const kind of ["page", "change", "reload"]) source.addEventListener(kind, (event) => changed(kind, event));
}

function changed(kind, event) {
  const watch = kind === "reload" ? "" : JSON.parse(event.data).watch;
  for (const [port, watches] of tabs) if (!watch || watches.includes(watch)) port.postMessage({ changed: watch });
}

function tell(message) {
  for (const [port, watches] of tabs) if (watches.length) port.postMessage(message);
}
