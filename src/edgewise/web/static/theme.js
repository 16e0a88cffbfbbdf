// A classic script in the head: the chosen theme is set before anything is painted.
(function () {
  "use strict";
  var theme = null;
  try {
    theme = JSON.parse(localStorage.getItem("edgewise.settings") || "{}").theme;
  } catch (error) {
    theme = null; // storage is closed or garbled: the system's theme
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
