// Optional additions to pages that work without a script: a countdown, times in the reader's time zone,
// a button that shows a typed password, and forms that only lead on.
"use strict";

const lang = document.documentElement.lang || undefined;

// The page shows UTC and says so once; the script knows the reader's time zone, and says that instead. All times on a
// page are told by one clock: those in tooltips of charts and in fields, too.
const clock = { hour: "2-digit", minute: "2-digit" };
const day = { month: "short", day: "numeric" };
const whole = { dateStyle: "medium", timeStyle: "short" };
const isToday = (at) => at.toDateString() === new Date().toDateString();
const hour = (at) => isToday(at) ? clock : whole;
const ends = (plot) => [Date.parse(plot.dataset.from), Date.parse(plot.dataset.until)];
const told = (at, format) => new Intl.DateTimeFormat(lang, format).format(at);
function localise(root) {
  for (const time of root.querySelectorAll("time[data-local], time[data-clock], time[data-hour]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.textContent = told(at, time.hasAttribute("data-local") ? whole
      : time.hasAttribute("data-hour") ? hour(at)
      : isToday(at) ? { ...clock, second: "2-digit" } : { ...clock, ...day });
  }
  for (const title of root.querySelectorAll("title[data-at]")) {
    const at = new Date(title.dataset.at);
    title.textContent = `${told(at, hour(at))} – ${title.dataset.said}`;
  }
  // Ticks are at round times of the reader's clock, too, and say the date where a day begins.
  for (const tick of root.querySelectorAll(".ticks text")) {
    const [axis, at] = [tick.parentElement, new Date(tick.dataset.at)];
    const [from, until] = ends(axis.previousElementSibling);
    at.setTime(+at + (at.getTimezoneOffset() * 60000) % Math.min(axis.dataset.every * 1000, 86400000));
    const place = (at - from) / (until - from);
    tick.setAttribute("x", `${100 * place}%`);
    tick.textContent = place < 0 || place > 0.97 ? "" : told(at, at.getHours() || at.getMinutes() ? clock : day);
  }
  for (const line of root.querySelectorAll("[data-zone]")) {
    line.textContent = line.dataset.zone.replace("{}", Intl.DateTimeFormat().resolvedOptions().timeZone);
  }
}
localise(document);

// Such a field has no time zone: the server takes it as UTC, and the reader types their own time.
for (const field of document.querySelectorAll("input[type=datetime-local]")) {
  const at = new Date(`${field.value}Z`);
  if (field.value) field.value = new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  field.form.addEventListener("formdata", ({ formData }) => {
    if (field.value) formData.set(field.name, new Date(field.value).toISOString());
  });
}

// As the server writes it: "12 seconds", and in Chinese the short form.
const unitDisplay = lang === "zh-CN" ? "short" : "long";
const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

// The two largest units. To the second, where the server rounds up, because this one counts down visibly.
function words(seconds) {
  const first = Math.max(0, units.findIndex(([, size]) => seconds >= size));
  const parts = [];
  let left = seconds;
  for (const [unit, size] of seconds < 1 ? [] : units.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) {
      const text = new Intl.NumberFormat(lang, { style: "unit", unit, unitDisplay }).format(count);
      parts.push(text.replace(/(\d)(?=\p{L})/u, "$1 "));
    }
  }
  return parts.join(" ");
}

// Counted from the arrival of the page, because the reader's clock may be wrong.
for (const notice of document.querySelectorAll("[data-wait]")) {
  const start = Date.now();
  const seconds = Number(notice.dataset.wait);
  const line = notice.querySelector("[data-ticking]");
  const left = notice.querySelector("[data-left]");
  const done = notice.querySelector("[data-done]");
  const after = notice.querySelector("[data-after-wait]");
  const tick = () => {
    const rest = Math.ceil(seconds - (Date.now() - start) / 1000);
    line.hidden = rest <= 0;
    if (after) after.disabled = rest > 0;
    if (rest > 0) {
      left.textContent = words(rest);
      return;
    }
    clearInterval(timer);
    done.textContent = done.dataset.done;
    notice.classList.add("over");
  };
  const timer = setInterval(tick, 1000);
  tick();
}

for (const input of document.querySelectorAll("input[data-peek]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "peek";
  button.setAttribute("aria-controls", input.id);
  const show = (visible) => {
    input.type = visible ? "text" : "password";
    button.textContent = visible ? input.dataset.hide : input.dataset.peek;
    button.setAttribute("aria-pressed", String(visible));
  };
  show(false);
  button.addEventListener("click", () => show(input.type === "password"));
  // The browser must not remember a shown password as typed text.
  input.form.addEventListener("submit", () => show(false));
  const box = document.createElement("div");
  box.className = "peek-box";
  const focused = document.activeElement === input;
  input.replaceWith(box);
  box.append(input, button);
  if (focused) input.focus();
}

// A second press right after the first is the same press. (The server holds to that, too; but what it shows only once
// would be lost with the first answer.)
for (const form of document.querySelectorAll("form[method=post]")) {
  let sent = 0;
  form.addEventListener("submit", (event) => {
    if (event.defaultPrevented) return;
    if (Date.now() - sent < 2000) event.preventDefault();
    else sent = Date.now();
  });
}

// Instead of typing letters, the device computes, from when the box is reached or the form is submitted; a worker does, so
// that the page stays as it is. Whoever unfolds the image stops it: a solution would take the letters away while they are
// typed. WebCrypto exists on https and on localhost only.
const proof = document.querySelector("[data-proof]");
if (proof && window.Worker && window.crypto?.subtle) {
  const { proof: challenge, worker: script, working, sending, done, failed } = proof.dataset;
  const [box, instead] = proof.querySelectorAll("button");
  const [progress, status] = [proof.querySelector("progress"), proof.querySelector("[role=status]")];
  const [solution, letters] = [proof.querySelector("input"), document.getElementById("captcha_letters")];
  const { parameters, signature } = JSON.parse(challenge);
  const hint = status.textContent;
  let worker, submitted;
  const unfold = (image) => {
    instead.setAttribute("aria-expanded", String(image));
    letters.hidden = !image;
    for (const input of letters.querySelectorAll("input")) input.disabled = !image;
  };
  const stop = (text) => {
    worker?.terminate();
    worker = undefined;
    progress.hidden = true;
    status.textContent = text;
  };
  const end = (found) => {
    const again = submitted;
    submitted = undefined;
    stop(found ? done : failed);
    unfold(!found);
    if (!found) {
      if (again) letters.querySelector("input, button").focus();
      return;
    }
    solution.value = btoa(JSON.stringify({ challenge: { parameters, signature }, solution: found }));
    box.setAttribute("aria-checked", "true");
    if (document.activeElement === instead) box.focus();
    instead.hidden = true;
    if (again) solution.form.requestSubmit(again.submitter);
  };
  const start = () => {
    if (worker || solution.value) return;
    unfold(false);
    status.textContent = working;
    progress.value = 0;
    progress.hidden = false;
    try {
      worker = new Worker(script);
    } catch {
      end();
      return;
    }
    worker.onerror = () => end();
    worker.onmessage = ({ data: { likely, found } }) => {
      if (likely) progress.value = likely;
      else end(found);
    };
    worker.postMessage({ parameters });
  };
  box.addEventListener("focus", () => { if (letters.hidden) start(); });
  box.addEventListener("click", start);
  instead.addEventListener("click", () => {
    submitted = undefined;
    stop(hint);
    unfold(letters.hidden);
  });
  // Before the others: the form is sent when there is a solution, unless it is sent to enter another number.
  solution.form.addEventListener("submit", (event) => {
    if (solution.value || !letters.hidden || event.submitter?.name === "change") return;
    event.preventDefault();
    submitted = event;
    start();
    if (worker) status.textContent = sending;
  }, { capture: true });
  // A browser that goes back fills in what was sent.
  solution.value = "";
  unfold(instead.getAttribute("aria-expanded") === "true");
  proof.parentElement.querySelector("legend").className = "hidden";
  proof.hidden = false;
}

// A browser that reads the code from the message offers to fill it in.
const oneTimeCode = document.querySelector("input[autocomplete=one-time-code]");
if (oneTimeCode && "OTPCredential" in window) {
  const stop = new AbortController();
  oneTimeCode.form.addEventListener("submit", () => stop.abort());
  navigator.credentials.get({ otp: { transport: ["sms"] }, signal: stop.signal })
    .then((message) => { if (!oneTimeCode.value) oneTimeCode.value = message.code; })
    .catch(() => {});
}

// "/" and Ctrl-K lead to the search, wherever a key is not text.
const search = document.getElementById("find");
if (search) document.addEventListener("keydown", (event) => {
  const types = event.target.closest("input, select, textarea, [contenteditable]");
  const asked = (event.ctrlKey || event.metaKey) ? event.key.toLowerCase() === "k" : event.key === "/" && !event.altKey && !types;
  if (!asked) return;
  event.preventDefault();
  const side = search.closest("[popover]");
  if (!search.getClientRects().length) side.showPopover?.();
  search.focus();
  search.select();
});

// The menu of the reader closes like any other menu. Without a script its name closes it.
const who = document.querySelector("details.who");
if (who) {
  document.addEventListener("click", ({ target }) => { if (!who.contains(target)) who.open = false; });
  who.addEventListener("focusout", ({ relatedTarget }) => { if (relatedTarget && !who.contains(relatedTarget)) who.open = false; });
  who.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    who.open = false;
    who.firstElementChild.focus();
  });
}

// Dragging over the chart of events leads to that time. The links beside it do so without a pointer.
const plot = document.querySelector("[data-zoom] .plot");
if (plot) {
  const [first, last] = ends(plot);
  const band = document.createElement("span");
  band.className = "band";
  let from, to;
  const share = (event) => {
    const { left, width } = plot.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - left) / width));
  };
  const end = () => { from = undefined; band.remove(); };
  plot.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    from = to = share(event);
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    if (from === undefined) return;
    to = share(event);
    band.style.left = `${Math.min(from, to) * 100}%`;
    band.style.width = `${Math.abs(to - from) * 100}%`;
    plot.append(band);
  });
  plot.addEventListener("pointerup", () => {
    if (from === undefined) return;
    const [since, until] = [from, to].sort((a, b) => a - b).map((at) => new Date(first + at * (last - first)).toISOString());
    const far = Math.abs(to - from) * plot.clientWidth > 5;
    end();
    if (!far) return;
    const url = new URL(location.href);
    for (const name of ["span", "after"]) url.searchParams.delete(name);
    url.searchParams.set("since", since);
    url.searchParams.set("until", until);
    location.assign(url);
  });
  plot.addEventListener("pointercancel", end);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") end(); });
}

// The console. A button or a link on the page does the same as each of these.

// Instead of a page alone a server may send text: lines that say how far the page is, in percent, and then the page.
async function page(url, options, tell) {
  const answer = await fetch(url, { ...options, credentials: "same-origin" });
  if (answer.redirected) throw new Error("elsewhere");
  let text = "";
  if (tell && answer.headers.get("content-type")?.startsWith("text/plain")) {
    const [reader, decoder] = [answer.body.getReader(), new TextDecoder()];
    for (let part; !(part = await reader.read()).done;) {
      text += decoder.decode(part.value, { stream: true });
      if (!text.includes("<")) tell(Number(text.slice(0, text.lastIndexOf("\n")).split("\n").at(-1)));
    }
  } else {
    text = await answer.text();
  }
  return new DOMParser().parseFromString(text.slice(text.indexOf("<")), "text/html");
}

// Keeps open parts open, and the focus.
function swap(id, from) {
  const [old, fresh] = [document.getElementById(id), from.getElementById(id)];
  if (!old || !fresh) throw new Error("another page");
  for (const details of old.querySelectorAll("details[open][id]")) fresh.querySelector(`#${details.id}`)?.setAttribute("open", "");
  localise(fresh);
  old.replaceWith(fresh);
}

const fresh = document.getElementById("fresh");
if (fresh) {
  const { every, pause, resume, failed } = fresh.dataset;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain";
  // For readers who prefer reduced motion it starts paused.
  let follows = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  const word = () => { button.textContent = follows ? pause : resume; };
  button.addEventListener("click", () => { follows = !follows; word(); });
  word();
  fresh.parentElement.append(button);
  setInterval(async () => {
    const part = document.getElementById("fresh-part");
    if (!follows || document.hidden || part.contains(document.activeElement)) return;
    try {
      const next = await page(location.href);
      swap("fresh-part", next);
      // It says that an attack goes on.
      document.title = next.title;
      const when = next.querySelector("#fresh time");
      localise(when.parentElement);
      document.querySelector("#fresh time").replaceWith(when);
    } catch {
      follows = false;
      word();
      fresh.textContent = failed;
    }
  }, Number(every) * 1000);
}

// A draft is tried while it is typed, like with its first button. Where it may take long, a bar shows how far it is, and it
// can be stopped: the server stops when nobody reads its answer. What was pressed and took no time leads to the page.
const draft = document.querySelector("form[data-draft]");
if (draft) {
  const words = document.getElementById("preview").dataset;
  const button = draft.querySelector("button[value=try]");
  let timer, trying;
  const drop = () => {
    clearTimeout(timer);
    trying?.abort();
    trying = undefined;
    document.getElementById("preview").classList.remove("waiting");
  };
  const attempt = async (press) => {
    drop();
    const mine = trying = new AbortController();
    const preview = document.getElementById("preview");
    const title = preview.querySelector("h2");
    preview.classList.add("waiting");
    const body = new URLSearchParams(new FormData(draft));
    if (words.stop) body.append("progress", "1");
    let line, bar, stopped;
    const tell = (percent) => {
      if (!line) {
        const stop = document.createElement("button");
        line = document.createElement("p");
        bar = document.createElement("progress");
        line.className = "progress";
        bar.max = 100;
        bar.setAttribute("aria-label", words.progress);
        stop.type = "button";
        stop.className = "plain";
        stop.textContent = words.stop;
        stop.addEventListener("click", () => { clearTimeout(timer); stopped = true; mine.abort(); });
        line.append(bar, stop);
        title.after(line);
      }
      bar.value = percent;
    };
    const leave = () => {
      const pressed = document.createElement("input");
      [pressed.type, pressed.name, pressed.value] = ["hidden", "do", "try"];
      draft.append(pressed);
      draft.submit();
      pressed.remove();
    };
    const say = (text) => {
      const said = document.createElement("p");
      said.setAttribute("role", "status");
      preview.replaceChildren(title, said);
      // What is there from the start is not read out.
      setTimeout(() => { said.textContent = text; }, 100);
    };
    const sent = page(draft.action, { method: "POST", body, signal: mine.signal }, tell);
    const next = await sent.catch(() => undefined);
    const at = document.activeElement;
    const led = line?.contains(at) || press && (at === button || at === document.body);
    if (line?.contains(at)) button.focus();
    line?.remove();
    if (mine !== trying) return;
    preview.classList.remove("waiting");
    if (press && !line) leave();
    else if (stopped) say(words.stopped);
    else if (next?.getElementById("preview")) {
      swap("preview", next);
      const result = document.querySelector("#preview h2");
      if (led) result.tabIndex = -1, result.focus();
    } else if (words.failed) say(words.failed);
  };
  draft.addEventListener("input", (event) => {
    if (event.target.id === "reason") return;
    clearTimeout(timer);
    timer = setTimeout(attempt, 600);
  });
  addEventListener("beforeunload", drop);
  if (words.stop) draft.addEventListener("submit", (event) => {
    if (event.submitter !== button) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    attempt(true);
  }, { capture: true });
}

// A number that has the focus is replaced by what is typed.
document.querySelector("input[inputmode=numeric][autofocus]")?.select();

// Text that is pasted elsewhere. Where a browser does not copy (without https), it selects it.
for (const text of document.querySelectorAll("pre[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain";
  button.textContent = text.dataset.copy;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = text.dataset.copied;
    } catch {
      getSelection().selectAllChildren(text);
    }
  });
  text.before(button);
}

// Accounts: one box for all of the page.
for (const place of document.querySelectorAll("[data-choose-all]")) {
  const boxes = [...place.closest("form").querySelectorAll("input[name=account]")];
  const all = document.createElement("input");
  all.type = "checkbox";
  all.setAttribute("aria-label", place.dataset.chooseAll);
  const follow = () => {
    const chosen = boxes.filter((box) => box.checked).length;
    all.checked = chosen === boxes.length;
    all.indeterminate = chosen > 0 && !all.checked;
  };
  all.addEventListener("change", () => { for (const box of boxes) box.checked = all.checked; });
  for (const box of boxes) box.addEventListener("change", follow);
  follow();
  place.replaceWith(all);
}

// While somebody types, the search lists what it would find. The arrows go through the list, and Escape closes it.
const finder = document.querySelector(".sidebar .find");
if (finder) {
  const [field, list] = [finder.querySelector("input[type=search]"), document.createElement("div")];
  list.className = "suggested";
  let [timer, turn] = [0, 0];
  const close = () => { turn += 1; clearTimeout(timer); list.remove(); };
  const suggest = async () => {
    const mine = (turn += 1);
    const body = new URLSearchParams(new FormData(finder));
    body.set("suggest", "1");
    const found = (await page(finder.action, { method: "POST", body })).querySelector(".found");
    // What was typed since asks again.
    if (mine !== turn) return;
    list.replaceChildren(...(found ? [found] : []));
    finder.append(list);
  };
  field.addEventListener("input", () => {
    close();
    if (field.value.trim()) timer = setTimeout(() => suggest().catch(close), 150);
  });
  finder.addEventListener("keydown", (event) => {
    const stops = [field, ...list.querySelectorAll("a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const at = stops.indexOf(document.activeElement);
    if (step && stops.length > 1 && at >= 0) {
      event.preventDefault();
      stops[(at + step + stops.length) % stops.length].focus();
    } else if (event.key === "Escape" && list.isConnected) {
      event.stopPropagation();
      event.preventDefault();
      field.focus();
      close();
    }
  });
  finder.addEventListener("focusout", ({ relatedTarget }) => { if (!finder.contains(relatedTarget)) close(); });
}

// An act loads its page again. The focus returns to what was pressed, or, if that is gone, to the part that it stood in;
// what the page says about the act stays in view above it, and is read out.
document.addEventListener("submit", ({ target, submitter }) => {
  const part = target.closest("main :is(section[aria-labelledby], [id])");
  const id = part?.id || part?.getAttribute("aria-labelledby");
  if (id) sessionStorage.setItem("pressed", JSON.stringify({ id, path: location.pathname, text: submitter?.textContent, at: Date.now() }));
});
const pressed = JSON.parse(sessionStorage.getItem("pressed") ?? "{}");
if (pressed.path === location.pathname) {
  sessionStorage.removeItem("pressed");
  const part = document.getElementById(pressed.id);
  if (part && Date.now() - pressed.at < 60000 && !document.querySelector("[autofocus]")) {
    const within = part.closest("section") ?? part;
    const same = [...within.querySelectorAll("summary, button:not(.hidden)")].find((it) => it.textContent === pressed.text);
    const target = same?.getClientRects().length ? same : part;
    if (target === part) part.tabIndex = -1;
    const said = document.querySelector("main > .notice[role=status]");
    target.focus({ preventScroll: Boolean(said) });
    if (said) setTimeout(() => said.replaceChildren(...said.childNodes), 500);
  }
}

// A page that only leads on.
document.querySelector("form[data-submit]")?.requestSubmit();
