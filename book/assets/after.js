// Gives names to what the widget and theme scripts leave unnamed, for keyboards and screen readers.
(function () {
  function nameControl(row) {
    const label = row.querySelector('.icl-label');
    const handle = row.querySelector('.noUi-handle');
    if (!label || !handle) return;
    handle.setAttribute('aria-label', label.textContent);
    const value = row.querySelector('.icl-value');
    if (value) handle.setAttribute('aria-valuetext', value.textContent);
    const names = ['Play or pause', 'Stop', 'Repeat'];
    row.querySelectorAll('.widget-play button').forEach((button, i) => {
      button.setAttribute('aria-label', names[i] + ': ' + label.textContent);
      button.title = names[i];
    });
  }

  function nameFigure(box) {
    box.setAttribute('role', 'group');
    box.setAttribute('aria-label', 'Interactive figure');
    const frames = box.querySelector('.icl-frames');
    if (frames) frames.setAttribute('aria-live', 'polite');
    box.querySelectorAll('.icl-control').forEach(nameControl);
  }

  function nameAll() {
    document.querySelectorAll('.icl-explore').forEach(nameFigure);
  }

  // From disk, a browser forbids the search page to read the other pages for its summaries.
  if (location.protocol === 'file:' && typeof DOCUMENTATION_OPTIONS !== 'undefined') {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  function start() {
    // Code and tables that scroll sideways must be reachable by keyboard.
    document.querySelectorAll('article pre, article table, article .pst-scrollable-table-container').forEach((block) => {
      if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
    });
    const outputs = document.querySelectorAll('script[type="application/vnd.jupyter.widget-view+json"]');
    outputs.forEach((script) => {
      new MutationObserver(nameAll).observe(script.parentElement, { childList: true, subtree: true });
    });
    nameAll();
  }
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', start);
  else start();
})();
