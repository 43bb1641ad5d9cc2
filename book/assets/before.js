// Runs before every other script of the page; mends what widgets and theme do to each other.

// 1. The theme's FontAwesome replaces <i> elements by <svg>; the Play button keeps a hold on its <i>.
//    'nest' puts the drawing inside the element instead.
window.FontAwesomeConfig = { autoReplaceSvg: 'nest' };

// 2. Widgets ask MathJax 2 (MathJax.Hub.Queue) to typeset; the page carries MathJax 3.
(function () {
  let current;
  const hub = {
    Queue: function (request) {
      const element = request && request[2];
      if (element && current && current.typesetPromise) current.typesetPromise([element]);
    },
  };
  Object.defineProperty(window, 'MathJax', {
    configurable: true,
    get: () => current,
    set: (value) => {
      current = value;
      if (value && !value.Hub) Object.defineProperty(value, 'Hub', { value: hub });
    },
  });
})();

// 3. The widget script checks its own schema and warns about the schema's style; nobody can act on it.
const warn = console.warn;
console.warn = function (...words) {
  if (!String(words[0]).startsWith('strict mode: use allowUnionTypes')) warn.apply(console, words);
};
