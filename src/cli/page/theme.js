/* Dark or light, before anything is drawn: what the system prefers, or what the reader chose here.
 * All scripts share one global object, T; they are plain scripts in a fixed order (index.html), so
 * that a report can have them in one file. */
'use strict';

const T = { listeners: {} };

T.on = (name, listener) => {
  (T.listeners[name] = T.listeners[name] || []).push(listener);
};

T.emit = (name, ...args) => {
  for (const listener of T.listeners[name] || []) listener(...args);
};

/* A reader may have forbidden pages to keep anything; files have no place for it. */
T.keep = (key, value) => {
  try {
    localStorage.setItem('trireme.' + key, value);
  } catch (error) { /* it is forgotten, then */ }
};

T.kept = (key) => {
  try {
    return localStorage.getItem('trireme.' + key);
  } catch (error) {
    return null;
  }
};

T.theme = {
  choices: ['auto', 'light', 'dark'],
  choice: 'auto',
  dark: matchMedia('(prefers-color-scheme: dark)'),

  apply() {
    const dark = T.theme.choice === 'auto' ? T.theme.dark.matches : T.theme.choice === 'dark';
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    T.emit('theme');
  },

  next() {
    const at = T.theme.choices.indexOf(T.theme.choice);
    T.theme.choice = T.theme.choices[(at + 1) % T.theme.choices.length];
    T.keep('theme', T.theme.choice);
    T.theme.apply();
  },

  /* A button that goes from one choice to the next and says which it is. */
  button(button) {
    const tell = () => {
      const marks = { auto: '◐', light: '○', dark: '●' };
      button.textContent = `${marks[T.theme.choice]} ${T.theme.choice}`;
      button.setAttribute('aria-label', `colours: ${T.theme.choice}; press to change`);
    };
    button.addEventListener('click', () => {
      T.theme.next();
      tell();
    });
    tell();
  },
};

if (T.theme.choices.includes(T.kept('theme'))) T.theme.choice = T.kept('theme');
T.theme.dark.addEventListener('change', T.theme.apply);
T.theme.apply();
