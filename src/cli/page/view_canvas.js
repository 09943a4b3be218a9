/* A canvas that is as wide as its place, or as its content, and sharp on every screen. It lies in a
 * box that scrolls sideways; what is drawn is told in words elsewhere. */
'use strict';

/* {height(), width(room): how wide the content is, draw(context, width, height), pick(x, y), label};
 * the result has element, draw(), now(), show(from, to): scrolls there. */
T.view.canvas = (way) => {
  const canvas = T.el('canvas', { role: 'img', 'aria-label': way.label });
  const box = T.el('div', { class: 'scroll canvas', tabindex: 0, 'aria-label': way.label, role: 'region' }, canvas);
  const self = { element: box, canvas };
  let asked = false;

  /* At once; draw() waits for the next picture of the screen, however often it is called. */
  self.now = () => {
    asked = false;
    const room = box.clientWidth;
    if (!room || box.closest('[hidden]')) return;
    const width = Math.max(room, Math.ceil(way.width ? way.width(room) : room)), height = way.height();
    /* Browsers give no canvas beyond some size; a wide one is less sharp instead. */
    const sharp = Math.max(0.25, Math.min(devicePixelRatio || 1, 16000 / width));
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
    canvas.style.width = width + 'px';
    canvas.style.height = height + 'px';
    const context = canvas.getContext('2d');
    context.setTransform(sharp, 0, 0, sharp, 0, 0);
    context.clearRect(0, 0, width, height);
    way.draw(context, width, height);
  };
  self.draw = () => {
    if (!asked) requestAnimationFrame(self.now);
    asked = true;
  };
  self.show = (from, to) => {
    if (from < box.scrollLeft + 60 || to > box.scrollLeft + box.clientWidth - 20)
      box.scrollLeft = Math.max(0, (from + to) / 2 - box.clientWidth / 2);
  };
  if (way.pick)
    canvas.addEventListener('click', (event) => {
      const place = canvas.getBoundingClientRect();
      way.pick(event.clientX - place.left, event.clientY - place.top);
    });
  new ResizeObserver(self.draw).observe(box);
  T.on('theme', self.draw);
  return self;
};

/* "#3a7bd5" and a share of the colour behind it, as a colour that is opaque. */
T.view.mix = (colour, other, share) => {
  const parts = (text) => {
    const hex = text.replace('#', '');
    const long = hex.length === 3 ? [...hex].map((c) => c + c).join('') : hex;
    return [0, 2, 4].map((i) => parseInt(long.slice(i, i + 2), 16));
  };
  const a = parts(colour), b = parts(other);
  return '#' + a.map((v, i) => Math.round(v + (b[i] - v) * share).toString(16).padStart(2, '0')).join('');
};

/* Black or white, whichever is easier to read on a colour. */
T.view.inkOn = (colour) => {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? '#111111' : '#ffffff';
};
