// Filters the findings of a report, and opens the one that an address names. Without it, all are shown.
(() => {
  "use strict";
  const form = document.getElementById("filter");
  if (!form) return;
  const findings = [...document.querySelectorAll("details.finding")].map((each) => ({
    each,
    text: each.querySelector("summary").textContent.toLowerCase(),
  }));
  const matches = document.getElementById("matches");
  const filter = () => {
    const wanted = new FormData(form);
    const text = (wanted.get("text") || "").trim().toLowerCase();
    const kinds = ["cause", "difference", "link"].filter((name) => wanted.get(name));
    let shown = 0;
    for (const { each, text: said } of findings) {
      const fits = said.includes(text) && kinds.every((name) => each.dataset[name] === wanted.get(name));
      each.hidden = !fits;
      if (fits) shown += 1;
    }
    matches.textContent = `${shown} of ${findings.length}`;
  };
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
})();
