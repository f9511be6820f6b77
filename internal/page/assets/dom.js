// Helpers for the DOM. Texts become text nodes, never markup, because tenants choose the names of objects.

const svgNamespace = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

// element makes an element with a class and children, which are elements or texts.
export function element(tag, className, ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children.filter((c) => c !== null && c !== ""));
  return e;
}

// breakable returns a name in which a line can break after a dot.
export const breakable = (name) => name.split(/(?<=\.)/).flatMap((part, i) => (i > 0 ? [element("wbr"), part] : [part]));

// cells gives a row its ARIA roles, because the layout for phones removes them.
export function cells(row) {
  row.setAttribute("role", "row");
  for (const e of row.children) e.setAttribute("role", e.tagName === "TH" ? "rowheader" : "cell");
  return row;
}

// drawing makes an element of SVG.
export function drawing(tag, attributes = {}) {
  const e = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

const icons = {
  ok: "M2.5 8.5l3.5 3.5 7.5-8",
  warning: "M8 1.8L15 14H1zM8 6.2v3.6M8 11.7v.6",
  critical: "M8 1.2a6.8 6.8 0 1 0 0 13.6A6.8 6.8 0 1 0 8 1.2M5.4 5.4l5.2 5.2M10.6 5.4l-5.2 5.2",
  notice: "M8 1.2a6.8 6.8 0 1 0 0 13.6A6.8 6.8 0 1 0 8 1.2M8 7v4.3M8 4.6v.6",
  waiting: "M8 1.2a6.8 6.8 0 1 0 0 13.6A6.8 6.8 0 1 0 8 1.2M8 4.5V8l2.5 1.8",
};

// setMarked shows a text with an icon before it. Screen readers skip the icon.
export function setMarked(e, icon, text) {
  if (e.dataset.icon === icon && e.lastChild.textContent === text) return;
  const svg = drawing("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" });
  svg.append(drawing("path", { d: icons[icon] ?? icons.waiting }));
  e.dataset.icon = icon;
  e.replaceChildren(svg, element("span", "", text));
}

// setText changes a text only if it differs, which keeps a selection.
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

export function setClass(e, name) {
  if (e.className !== name) e.className = name;
}

// link makes a link to a page of the documentation, which opens in a new tab.
export function link(text, to) {
  const a = element("a", "", text);
  if (to.startsWith("https://")) a.href = to;
  a.target = "_blank";
  a.rel = "noopener noreferrer";
  return a;
}

// reconcile gives an element one child for each item. It reuses existing children, so they keep the focus.
export function reconcile(parent, items, key, create, update) {
  const before = new Map([...parent.children].map((e) => [e.dataset.key, e]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = key(item);
    let e = before.get(k);
    if (e) {
      before.delete(k);
    } else {
      e = create(item);
      e.dataset.key = k;
    }
    update(e, item);
    if (e === at) at = at.nextElementSibling;
    else parent.insertBefore(e, at);
  }
  for (const e of before.values()) e.remove();
}
