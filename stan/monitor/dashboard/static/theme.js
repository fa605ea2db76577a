// Light or dark: as the system has it, or as was chosen in this browser.

const NAMES = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" };
const ORDER = Object.keys(NAMES);
const KEY = "stan-theme";

function kept() {
  try {
    const found = localStorage.getItem(KEY);
    return ORDER.includes(found) ? found : "auto";
  } catch {
    return "auto";
  }
}

function set(button, theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = NAMES[theme];
  button.setAttribute("aria-label", `Colours: ${theme}. Press to change`);
  button.dataset.theme = theme;
}

export function begin(button) {
  set(button, kept());
  button.onclick = () => {
    const theme = ORDER[(ORDER.indexOf(button.dataset.theme) + 1) % ORDER.length];
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // it holds for this page
    }
    set(button, theme);
  };
}
