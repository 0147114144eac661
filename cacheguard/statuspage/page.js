"use strict";
// Renews the page every two seconds, except while it is paused, hidden or being read (focus or
// selection).
const button = document.getElementById("pause");
let paused = false;
button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.textContent = paused ? "Go on" : "Pause";
  button.setAttribute("aria-pressed", String(paused));
});
const reading = () => paused || document.hidden || document.activeElement.closest?.("#main") || String(getSelection()) !== "";
async function renew() {
  if (!reading()) {
    try {
      const answer = await fetch("", { signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(String(answer.status));
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      const parts = reading() ? [] : ["main", "time"]; // somebody may have begun to read
      for (const part of parts) {
        document.querySelector(part).replaceWith(next.querySelector(part));
      }
      document.body.classList.remove("lost");
    } catch {
      document.body.classList.add("lost"); // the process is gone, perhaps: what is shown stays
    }
  }
  setTimeout(renew, 2000);
}
setTimeout(renew, 2000);
