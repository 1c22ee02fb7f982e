"use strict";
// The page is complete as it was served. This script keeps it current: it fetches the page again and changes in <main>
// only what differs. Nodes that do not differ stay in place, so that a selection and the focus survive.
(() => {
  const EVERY_MS = 2000;
  const PATIENCE_MS = 10000; // a server that vanished sends no error
  const state = document.getElementById("live");
  let shown = ""; // ETag of the version that is shown; the server answers 304 while it is the newest

  function morph(ours, theirs) {
    if (ours.nodeType === Node.TEXT_NODE) {
      if (ours.data !== theirs.data) ours.data = theirs.data;
      return;
    }
    for (const { name } of [...ours.attributes]) if (!theirs.hasAttribute(name)) ours.removeAttribute(name);
    for (const { name, value } of theirs.attributes) {
      if (ours.getAttribute(name) !== value) ours.setAttribute(name, value);
    }
    morphChildren(ours, theirs);
  }

  function morphChildren(ours, theirs) {
    const rows = new Map([...ours.children].map((row) => [row.dataset.key, row])); // rows move: find them by key
    let here = ours.firstChild;
    for (const wanted of [...theirs.childNodes]) {
      const key = wanted.dataset?.key;
      const row = key && rows.get(key);
      if (row) {
        rows.delete(key); // if two have the same key, the second is a new row
        if (row === here) here = here.nextSibling;
        else ours.insertBefore(row, here);
        morph(row, wanted);
      } else if (here && !key && !here.dataset?.key && here.nodeName === wanted.nodeName) {
        const next = here.nextSibling;
        morph(here, wanted);
        here = next;
      } else {
        ours.insertBefore(document.adoptNode(wanted), here);
      }
    }
    while (here) {
      const next = here.nextSibling;
      here.remove();
      here = next;
    }
  }

  function replaceMain(theirs) {
    const selection = getSelection();
    const { anchorNode, anchorOffset, focusNode, focusOffset } = selection;
    const focused = document.activeElement;
    morph(document.querySelector("main"), theirs);
    if (focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    if (anchorNode?.isConnected && focusNode.isConnected) {
      const within = (node, offset) => Math.min(offset, node.data?.length ?? node.childNodes.length);
      selection.setBaseAndExtent(
        anchorNode, within(anchorNode, anchorOffset), focusNode, within(focusNode, focusOffset),
      );
    }
  }

  async function refresh() {
    if (!document.hidden) {
      try {
        const headers = { "If-None-Match": shown };
        const signal = AbortSignal.timeout(PATIENCE_MS);
        const answer = await fetch(location.href, { cache: "no-store", headers, signal });
        if (answer.status !== 304) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          replaceMain(page.querySelector("main"));
          shown = answer.headers.get("ETag") ?? "";
        }
        state.textContent = answer.ok || answer.status === 304 ? "live" : "not current";
      } catch (error) {
        state.textContent = "not current: the monitor does not answer";
      }
    }
    setTimeout(refresh, EVERY_MS);
  }
  setTimeout(refresh, EVERY_MS);
})();
