// Follows Airflow's light or dark, asks again by itself, leads out of Airflow's frame, and triggers dry runs. Without it
// the page shows the same: in the browser's own light or dark, as of when it was opened.
"use strict";

// Airflow keeps the choice here, for all pages of its origin.
const THEME = "theme";

function followTheme() {
  const chosen = localStorage.getItem(THEME);
  const parent = window.parent === window ? null : window.parent.document.documentElement;
  const isDark = parent
    ? parent.classList.contains("dark")
    : chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
}

followTheme();
window.addEventListener("storage", (event) => {
  // Airflow's page changes its own class after it has stored the choice.
  if (event.key === THEME) setTimeout(followTheme, 50);
});

// A link to Airflow itself belongs in the window around the frame, which Airflow lets no page in it navigate.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-airflow]");
  if (link === null || window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  leaveFor(link.href);
});

function leaveFor(address) {
  const outside = window.parent.document.createElement("a");
  outside.href = address;
  outside.click();
}

// A run is triggered as Airflow's own form does it, in the name of who is signed in, and shown. What a dry run does
// not precede takes a second click.
async function trigger(button) {
  const { dag, trigger: address, conf, confirm } = button.dataset;
  if (confirm !== undefined && button.textContent !== confirm) {
    button.textContent = confirm;
    return;
  }
  button.disabled = true;
  try {
    const answer = await fetch(address, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ logical_date: null, conf: JSON.parse(conf) }),
      credentials: "same-origin",
    });
    if (!answer.ok) throw new Error(`Airflow refused: ${answer.status} ${await answer.text()}`.slice(0, 300));
    leaveFor(`${dag}/runs/${encodeURIComponent((await answer.json()).dag_run_id)}`);
  } catch (error) {
    const said = document.createElement("p");
    said.role = "alert";
    said.className = "problem";
    said.textContent = error.message;
    button.after(said);
  }
  button.disabled = false;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-trigger]");
  if (button !== null) trigger(button);
});

function isBusy(content) {
  const focused = document.activeElement;
  return document.hidden || (content.contains(focused) && focused.matches("input, textarea, select"));
}

function regionsOf(content) {
  return [...content.querySelectorAll(".scroll")];
}

// Who moves by keyboard stays where they are: the new element that leads to the same place, or has the same name.
function sameAs(focused, found) {
  const nameOf = (each) => [each.tagName, each.id, each.getAttribute("href"), each.ariaLabel, each.dataset.conf].join(" ");
  return [...found.querySelectorAll(focused.tagName)].find((each) => nameOf(each) === nameOf(focused));
}

async function refresh() {
  const content = document.getElementById("content");
  if (!isBusy(content)) {
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      const text = answer.ok ? await answer.text() : null;
      // The user may have begun to type since.
      if (text !== null && !isBusy(content)) {
        const found = new DOMParser().parseFromString(text, "text/html").getElementById("content");
        const open = new Set([...content.querySelectorAll("details[open]")].map((each) => each.id));
        found.querySelectorAll("details").forEach((each) => { each.open = each.open || open.has(each.id); });
        const focused = content.contains(document.activeElement) ? document.activeElement : null;
        const scrolled = new Map(regionsOf(content).map((each) => [each.ariaLabel, each.scrollLeft]));
        content.replaceWith(found);
        regionsOf(found).forEach((each) => { each.scrollLeft = scrolled.get(each.ariaLabel) ?? 0; });
        if (focused !== null) sameAs(focused, found)?.focus({ preventScroll: true });
      }
    } catch (error) {
      // The API server is away; the page stays as it is, with its time, and asks again.
    }
  }
  plan();
}

function plan() {
  const seconds = Number(document.getElementById("content")?.dataset.refresh);
  if (seconds > 0) setTimeout(refresh, seconds * 1000);
}

document.addEventListener("DOMContentLoaded", plan);
