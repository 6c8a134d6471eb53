// The entry of every page: starts the modules that the page needs. Reading works without it.
import { startTimes } from "./times.js";
import { startCopies } from "./copies.js";
import { startForms } from "./forms.js";
import { startLists } from "./lists.js";
import { startKeys } from "./keys.js";
import { startPalette } from "./palette.js";
import { startFilter } from "./filter.js";
import { startCharts } from "./charts.js";
import { startLogs } from "./log.js";
import { startEditor } from "./editor.js";
import { startLive } from "./live.js";

document.documentElement.classList.add("scripted");
startTimes();
startCopies(document);
startForms();
startLists();
startPalette();
startKeys();
startFilter();
startCharts();
startLogs();
startEditor();
startLive();
