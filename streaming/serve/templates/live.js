"use strict";
// The page as it was served is complete; this keeps it current: fetch it again, put its <main> in place of ours.
(() => {
  const EVERY_MS = 2000;
  const state = document.getElementById("live");
  let shown = ""; // which version: nothing is sent again while it is the newest
  async function refresh() {
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { cache: "no-store", headers: { "If-None-Match": shown } });
        if (answer.status !== 304) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          document.querySelector("main").replaceWith(document.adoptNode(page.querySelector("main")));
          shown = answer.headers.get("ETag") ?? "";
        }
        state.textContent = "live";
      } catch (error) {
        state.textContent = "not current: the monitor does not answer";
      }
    }
    setTimeout(refresh, EVERY_MS);
  }
  setTimeout(refresh, EVERY_MS);
})();
