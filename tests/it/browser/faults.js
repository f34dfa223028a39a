// What is wrong with the page as it is shown: a list of sentences, empty where nothing is.
const faults = [];
const name = (e) => `<${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""}${e.className && e.className.split ? "." + e.className.split(" ").join(".") : ""}> ${(e.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40)}`;
const unseen = (e) => e.closest(".hidden, .skip:not(:focus), [hidden]") || !e.getClientRects().length
  || getComputedStyle(e).visibility === "hidden";

// What is cut with an ellipsis.
const cut = (e) => e.closest(".who-name") !== null;

// Nothing runs out at the side.
const wide = document.scrollingElement.scrollWidth;
if (wide > innerWidth) faults.push(`scrolls sideways: ${wide} > ${innerWidth}`);
for (const e of document.body.querySelectorAll("*")) {
  if (unseen(e) || cut(e)) continue;
  const { left, right } = e.getBoundingClientRect();
  if (right > innerWidth + 0.5 || left < -0.5) faults.push(`runs out at the side (${left} to ${right}): ${name(e)}`);
}
// Boxes of their own do not spill either, but for what is cut with an ellipsis.
for (const e of document.querySelectorAll(".card, .notice, .captcha, .who, button, a, dd, .what, .when")) {
  if (!unseen(e) && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).overflowX === "visible")
    faults.push(`spills: ${name(e)}`);
}

// What axe does not look for: references to nothing.
for (const a of document.querySelectorAll('a[href^="#"]')) {
  if (!document.querySelector(a.getAttribute("href"))) faults.push(`leads nowhere: ${a.getAttribute("href")}`);
}

// What stands in code, or in a language of its own, is meant as it is.
const seen = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let text; (text = seen.nextNode());) {
  if (text.parentElement.closest("code, pre, .diff, textarea, option, [lang]:not(html)") || unseen(text.parentElement)) continue;
  const key = text.data.match(/%\{|\b[a-z]+(-[a-z]+)*\.[a-z]+-[a-z]+\b/);
  if (key) faults.push(`a key, not a text: ${key}`);
}

// What is to be hit is at least 24 pixels high and wide (WCAG 2.2 §2.5.8), but for links within a sentence.
for (const e of document.querySelectorAll("button, input:not([type=hidden]), a, summary")) {
  if (unseen(e) || (e.tagName === "A" && e.closest("p, li") && getComputedStyle(e).display === "inline")) continue;
  const { width, height } = e.getBoundingClientRect();
  if (width < 24 || height < 24) faults.push(`too small to hit (${width} x ${height}): ${name(e)}`);
}

// Contrast (WCAG 2.2 §1.4.3): 4.5 for text, 3 where it is large; §1.4.11: 3 for the edges of inputs.
const channels = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
const clear = ([, , , alpha]) => alpha === 0;
const ground = (e) => {
  for (let at = e; at; at = at.parentElement) {
    const colour = channels(getComputedStyle(at).backgroundColor);
    if (!clear(colour)) return colour;
  }
  return [255, 255, 255];
};
const light = ([r, g, b]) => {
  const [R, G, B] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * R + 0.7152 * G + 0.0722 * B;
};
const ratio = (one, other) => {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let text; (text = texts.nextNode());) {
  const e = text.parentElement;
  if (!text.data.trim() || unseen(e)) continue;
  const style = getComputedStyle(e), size = parseFloat(style.fontSize);
  const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
  const found = ratio(channels(style.color), ground(e));
  if (found < least) faults.push(`contrast ${found.toFixed(2)}: ${name(e)}`);
}
for (const e of document.querySelectorAll("input:not([type=hidden])")) {
  if (unseen(e)) continue;
  const found = ratio(channels(getComputedStyle(e).borderTopColor), ground(e.parentElement));
  if (found < 3) faults.push(`edge ${found.toFixed(2)}: ${name(e)}`);
}
return [...new Set(faults)];
