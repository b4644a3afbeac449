'use strict';
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const made = (tag, fields = {}, ...inside) => { const e = Object.assign(document.createElement(tag), fields); e.append(...inside); return e; };

  // Sorting: first press the natural direction, second the reverse, third the order that was given.
  const valueOf = (row, k) => row.cells[k].dataset.v ?? '';
  const isNumber = (text) => text !== '' && Number.isFinite(Number(text));
  const sorters = new Map();
  for (const table of all('table.sortable')) {
    const body = table.tBodies[0], original = [...body.rows], heads = all('thead [aria-sort]', table);
    const numeric = (k) => original.every((row) => valueOf(row, k) === '' || isNumber(valueOf(row, k)));
    const sort = () => {
      const k = heads.findIndex((head) => head.getAttribute('aria-sort') !== 'none');
      if (k < 0) { body.append(...original); return; }
      const sign = heads[k].getAttribute('aria-sort') === 'ascending' ? 1 : -1, byNumber = numeric(k);
      body.append(...[...original].sort((a, b) => {
        const [x, y] = [valueOf(a, k), valueOf(b, k)];
        if (x === '' || y === '') return (x === '') - (y === '');
        return sign * (byNumber ? Number(x) - Number(y) : x.localeCompare(y, 'en'));
      }));
    };
    heads.forEach((head, k) => head.querySelector('button').addEventListener('click', () => {
      const upwards = head.dataset.first === 'ascending' || !numeric(k);
      const [first, second] = upwards ? ['ascending', 'descending'] : ['descending', 'ascending'];
      const next = { none: first, [first]: second, [second]: 'none' }[head.getAttribute('aria-sort')];
      for (const other of heads) other.setAttribute('aria-sort', other === head ? next : 'none');
      sort();
    }));
    sorters.set(table, sort);
  }

  document.addEventListener('click', ({ target }) => {
    const button = target.closest('.copy');
    if (!button) return;
    const code = button.previousElementSibling;
    const say = (text) => { button.textContent = text; setTimeout(() => { button.textContent = 'copy'; }, 1500); };
    const select = () => { getSelection().selectAllChildren(code); say('selected'); };
    if (!navigator.clipboard) select();
    else navigator.clipboard.writeText(code.textContent).then(() => say('copied'), select);
  });

  // One dialog shows the card of a method, or the runs behind a number. Escape and the button close it; the browser gives the focus back.
  const data = JSON.parse(document.getElementById('data').textContent), dialog = document.querySelector('dialog');
  const show = (...inside) => {
    const close = made('button', { type: 'button', className: 'close', textContent: 'close' });
    close.addEventListener('click', () => dialog.close());
    dialog.firstElementChild.replaceChildren(close, ...inside);
    const title = dialog.querySelector('h3');
    title.id = 'dialog-title';
    dialog.showModal();
    dialog.scrollTop = 0;
  };
  dialog.addEventListener('click', ({ target }) => { if (target === dialog || target.closest('a[href^="#"]')) dialog.close(); });
  for (const link of all('a[href^="#card-"]')) {
    link.addEventListener('click', (event) => {
      event.preventDefault();
      const card = document.querySelector(link.hash).cloneNode(true);
      card.removeAttribute('id');
      show(card);
    });
  }

  const command = (text) => {
    const code = made('code', { textContent: text }), copy = made('button', { type: 'button', className: 'copy', textContent: 'copy' });
    copy.setAttribute('aria-label', `copy: ${text}`);
    return made('span', { className: 'command' }, code, copy);
  };
  const nameOf = (group, k = 0) => data.groups.each[group].p + data.groups.each[group].r[k][1];
  const listed = (settings) => Object.entries(settings).map(([name, value]) => `${name} ${value}`).join(', ');
  const runs = (group, words) => {
    const { s, p, r } = data.groups.each[group], { loss, dataset, hparams, ...rest } = s;
    const lines = r.map(([seed, hash, score]) => made('tr', {}, made('td', { textContent: seed }), made('td', { textContent: p + hash }), made('td', { textContent: score?.toFixed(2) ?? '' })));
    const heads = ['seed', 'run', 'test mAP'].map((text) => made('th', { scope: 'col', textContent: text }));
    return [
      made('h4', { textContent: words }), made('p', {}, r.length > 1 ? `The number is the mean of ${r.length} seeds. This trains seed ${r[0][0]} (${r[0][2].toFixed(2)}) again: ` : 'This trains it again: ', command(`spml train --like ${nameOf(group)}`)),
      made('p', { className: 'state', textContent: `Other seeds: -p seed 1 -p label_seed 1; any other value likewise. Configuration: ${listed({ loss, dataset, ...rest })}; hparams ${hparams}.` }),
      made('details', {}, made('summary', { textContent: `${r.length} run${r.length > 1 ? 's' : ''}, one a seed` }),
        made('table', {}, made('thead', {}, made('tr', {}, ...heads)), made('tbody', {}, ...lines))),
      made('details', {}, made('summary', { textContent: 'the rest of the configuration' }), made('p', { textContent: listed({ ...data.groups.usual, ...rest }) }))];
  };
  const opener = (td, name, open) => {
    const button = made('button', { type: 'button', className: 'open' }, ...td.childNodes);
    button.setAttribute('aria-label', `${td.textContent.replace('±', '± ')}: runs of ${name}`);
    button.addEventListener('click', open);
    td.replaceChildren(button);
  };

  // The board: the same cells show another number.
  const board = document.getElementById('board-table'), form = document.querySelector('.switches');
  const asked = (name) => form.elements[name].value;
  const sets = all('thead [data-set]', board).map((head) => head.dataset.set);
  const titles = Object.fromEntries(all('thead [data-set]', board).map((head) => [head.dataset.set, head.querySelector('button').textContent]));
  const signed = (value) => `${value.toFixed(1) < 0 ? '−' : '+'}${Math.abs(value).toFixed(1)}`;
  const parts = (row, cell, show, choice) => {   // value, text, small text, class
    const [level, levelHalf, n, gain, half, plain, plainHalf] = cell[choice];
    if (show === 'seconds') return [cell.s, cell.s.toFixed(1), '', ''];
    if (show === 'level') return [level, level.toFixed(1), levelHalf === null ? '1 seed' : `±${levelHalf.toFixed(1)}`, ''];
    const [value, width] = show === 'gain' && gain !== null ? [gain, half] : [plain, plainHalf];
    if (value === null) return ['', '–', 'no AN', ''];
    if (row.loss === 'an' && (show === 'gain' || row.head === 'linear')) return [0, '0', 'baseline', ''];
    const kind = width === null || !cell.x || Math.abs(value) <= width ? 'unsure' : value < 0 ? 'less' : 'more';
    return [value, signed(value), width === null ? '1 seed' : `±${width.toFixed(1)}${show === 'gain' && gain === null ? ' over linear AN' : ''}${cell.x ? '' : ' not exercised'}`, kind];
  };
  const behind = (row, name, set, cell) => () => {
    const [level, levelHalf, n, gain, half, plain, plainHalf] = cell[asked('choice')];
    const wide = (value, width) => (width === null ? '' : ` ± ${width.toFixed(1)}`);
    const facts = [`mAP ${level.toFixed(1)}${wide(level, levelHalf)} over ${n} seed${n > 1 ? 's' : ''}`];
    if (gain !== null) facts.push(`${signed(gain)}${wide(gain, half)} over AN on the same head`);
    if (plain !== null && row.head !== 'linear') facts.push(`${signed(plain)}${wide(plain, plainHalf)} over AN on the linear head`);
    facts.push(`${cell.s.toFixed(1)} seconds a run`);
    const how = asked('choice') === 'clean' ? 'fully labelled validation images' : 'observed validation labels alone';
    const others = [...new Set([cell.a, cell.b])].filter((group) => group !== null && group !== cell.g);
    show(made('h3', { textContent: `${name}, ${row.head} head, on ${titles[set]}` }), made('p', { textContent: `${facts.join('; ')}. Epoch chosen on ${how}.` }),
      ...runs(cell.g, name), ...others.flatMap((group) => runs(group, `AN, on the ${data.groups.each[group].s.head ?? data.groups.usual.head} head, from which the gain is measured`)));
  };
  const words = { gain: 'Points of mAP over AN on the same head, ± half the 95 % interval over seeds and test images, the same for both methods. Bold: the interval leaves 0 out.',
    plain: 'Points of mAP over AN on the linear head, ± half the 95 % interval over seeds and test images, the same for both methods. Bold: the interval leaves 0 out.',
    level: 'Test mAP in percent, ± half the 95 % interval over seeds.', seconds: 'Mean seconds of a run; of a head, with frozen features at hand. Machines and their load differ, so only large differences tell something.' };
  const fill = () => {
    const [show, choice, suite] = ['show', 'choice', 'trained'].map(asked);
    for (const tr of board.tBodies[0].rows) {
      const row = data.rows[tr.dataset.row], here = row.cells[suite] ?? {}, name = tr.querySelector('th a').textContent;
      sets.forEach((set, k) => {
        const td = tr.cells[k + 2], cell = here[set]?.[choice] ? here[set] : null, [value, text, small, kind] = cell ? parts(row, cell, show, choice) : ['', 'not run', '', 'none'];
        td.dataset.v = value;
        td.className = kind;
        td.replaceChildren(small ? `${text} ` : text, ...(small ? [made('small', { textContent: small })] : []));
        if (cell) opener(td, `${name}, ${row.head} head, ${titles[set]}`, behind(row, name, set, cell));
      });
      const rank = row.ranks[suite][choice], last = tr.cells[1];
      last.dataset.v = rank ?? '';
      last.textContent = rank ? rank.toFixed(1) : '–';
      tr.classList.toggle('idle', !Object.keys(here).length);
    }
    sorters.get(board)();
    filter();
  };
  const filter = () => {
    const [paper, head] = ['paper', 'head'].map(asked), idle = document.getElementById('idle').checked;
    for (const tr of board.tBodies[0].rows) {
      const { papers, head: own } = tr.dataset;
      tr.hidden = (paper && !papers.split(' ').includes(paper)) || (head && own !== head);
    }
    const matching = [...board.tBodies[0].rows].filter((tr) => !tr.hidden), seen = matching.filter((tr) => idle || !tr.classList.contains('idle')), shown = seen.length;
    const names = (rows) => new Set(rows.map((tr) => tr.querySelector('th a').textContent)), there = names(seen);
    const absent = paper && shown ? [...names(matching)].filter((name) => !there.has(name)) : [];
    document.getElementById('board-says').textContent = `${words[asked('show')]} ${shown} of ${board.tBodies[0].rows.length} rows${shown ? '' : ': nothing here is run yet, spml sweep methods --suite ' + asked('trained') + ' does it'}.${absent.length ? ` Not run: ${absent.join(', ')}.` : ''}`;
  };
  form.hidden = false;
  form.addEventListener('change', fill);
  form.addEventListener('submit', (event) => event.preventDefault());
  fill();

  for (const td of all('td[data-group]')) {
    if (td.dataset.group === '') continue;
    const section = td.closest('section'), row = td.closest('tr').cells[0].textContent.trim();
    opener(td, row, () => show(made('h3', { textContent: `${section.querySelector('h3 a').textContent}: ${row}` }), made('p', { textContent: td.title }), ...runs(Number(td.dataset.group), row)));
  }

  const root = document.documentElement, theme = document.getElementById('theme');
  const stored = (value) => { try { return value ? localStorage.setItem('theme', value) : localStorage.getItem('theme'); } catch { return null; } };
  if (stored()) root.dataset.theme = stored();
  theme.hidden = false;
  theme.addEventListener('click', () => {
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    stored(root.dataset.theme);
  });
})();
