'use strict';
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const made = (tag, fields = {}, ...inside) => { const e = Object.assign(document.createElement(tag), fields); e.append(...inside); return e; };

  // Sorting: first press the natural direction, second the reverse, third the order that was given.
  const valueOf = (row, k) => row.cells[k].dataset.v ?? '';
  const isNumber = (text) => text !== '' && Number.isFinite(Number(text));
  const sorters = new Map();
  for (const table of all('table.sortable')) {
    // each body is sorted for itself, below the row that names it
    const bodies = [...table.tBodies].map((body) => [body, [...body.rows].filter((row) => !row.classList.contains('group'))]);
    const original = bodies.flatMap(([, rows]) => rows), heads = all('thead [aria-sort]', table);
    const numeric = (k) => original.every((row) => valueOf(row, k) === '' || isNumber(valueOf(row, k)));
    const sort = () => {
      const k = heads.findIndex((head) => head.getAttribute('aria-sort') !== 'none');
      const sign = k < 0 ? 0 : heads[k].getAttribute('aria-sort') === 'ascending' ? 1 : -1, byNumber = k >= 0 && numeric(k);
      const order = (a, b) => {
        const [x, y] = [valueOf(a, k), valueOf(b, k)];
        if (x === '' || y === '') return (x === '') - (y === '');
        return sign * (byNumber ? Number(x) - Number(y) : x.localeCompare(y, 'en'));
      };
      for (const [body, rows] of bodies) body.append(...(k < 0 ? rows : [...rows].sort(order)));
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
  const listed = (settings) => Object.entries(settings).map(([name, value]) => `${name} ${value}`).join(', ');
  const runs = (group, words) => {
    const { s, run, r } = data.groups.each[group], { loss, dataset, hparams, ...rest } = s, scores = Object.entries(r);
    const [seed, first] = scores[0];
    const lines = scores.map(([seed, score]) => made('tr', {}, made('td', { textContent: seed }), made('td', { textContent: score.toFixed(2) })));
    const heads = ['seed', 'test mAP'].map((text) => made('th', { scope: 'col', textContent: text }));
    return [
      made('h4', { textContent: words }), made('p', {}, scores.length > 1 ? `${scores.length} seeds. This trains seed ${seed} (${first.toFixed(2)}) again: ` : 'This trains it again: ', command(`spml train --like ${run}`)),
      made('p', { className: 'state', textContent: `Other seeds: -p seed 1 -p label_seed 1; any other value likewise. Configuration: ${listed({ loss, dataset, ...rest })}; hparams ${listed(hparams) || 'none'}.` }),
      made('details', {}, made('summary', { textContent: `${scores.length} run${scores.length > 1 ? 's' : ''}, one a seed` }),
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
  const boardRows = () => all('tbody tr[data-row]', board), rowOf = (tr) => data.rows[tr.dataset.row];
  const PLAIN = 'an-linear-single';
  const signed = (value) => `${value.toFixed(1) < 0 ? '−' : '+'}${Math.abs(value).toFixed(1)}`;
  const kindOf = (value, half) => (half === null || Math.abs(value) <= half ? 'unsure' : value < 0 ? 'less' : 'more');
  // as gain_mark in site.py
  const mark = (value, half) => {
    const scale = Number(board.dataset.scale), place = (gain) => 4 * (scale + Math.min(Math.max(gain, -scale), scale)) + 4;
    const forward = value > 0 ? 4 : -4, dot = Math.abs(value) <= scale ? `<circle cx="${place(value)}" cy="9" r="2.5"/>` : `<path d="M${place(value)} 6l${forward} 3l${-forward} 3z"/>`;
    return `<svg class="m" aria-hidden="true"><path d="M${place(value - half)} 9H${place(value + half)}"/>${dot}</svg>`;
  };
  const parts = (row, cell, show, choice) => {   // value, text, small text, class
    const [level, levelHalf, n, gain, half, plain, plainHalf] = cell[choice];
    if (show === 'seconds') return [cell.s, cell.s.toFixed(1), '', ''];
    if (show === 'level') return [level, level.toFixed(1), levelHalf === null ? '1 seed' : `±${levelHalf.toFixed(1)}`, ''];
    const [value, width] = show === 'gain' ? [gain, half] : [plain, plainHalf];
    if (value === null) return ['', '–', 'no AN', ''];
    if (row.loss === 'an' && (show === 'gain' || row.head === 'linear')) return [0, '0', 'baseline', ''];
    return [value, signed(value), width === null ? '1 seed' : `±${width.toFixed(1)}${cell.x ? '' : ' not exercised'}`, cell.x ? kindOf(value, width) : 'unsure wraps'];
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
  const setCell = (td, [value, text, small, kind]) => {
    td.dataset.v = value;
    td.className = kind;
    td.replaceChildren(small ? `${text} ` : text, ...(small ? [made('small', { textContent: small })] : []));
  };
  const setMean = (td, value, half, isBaseline, marked) => {
    const of = value == null ? ['', '–', '', ''] : isBaseline ? [0, '0', 'baseline', ''] : [value, signed(value), `±${half.toFixed(1)}`, kindOf(value, half)];
    setCell(td, of);
    if (!marked) return;
    td.classList.add('first');
    if (value != null && !isBaseline) td.insertAdjacentHTML('beforeend', mark(value, half));
  };
  const over = (head) => `Points of mAP over AN on the ${head} head, ± half the 95 % interval over seeds and test images. Bold: the interval excludes 0.`;
  const words = { gain: over('same'), plain: over('linear'),
    level: 'Test mAP in percent, ± half the 95 % interval over seeds.', seconds: 'Mean seconds of a run; of a head, with frozen features at hand. Machines and their load differ, so only large differences tell something.' };
  const shownNow = () => (asked('trained') === 'photos' || asked('show') === 'seconds' ? asked('show') : 'level');   // of whole networks no gains
  const fill = () => {
    const [choice, suite] = ['choice', 'trained'].map(asked), show = shownNow(), heads = suite === 'photos';
    for (const tr of boardRows()) {
      const row = rowOf(tr), here = row.cells[suite] ?? {}, name = tr.querySelector('th a').textContent;
      const [mean, half, same, sameHalf] = (heads && row.means[choice]) || [];
      setMean(tr.cells[1], mean, half, row.id === PLAIN, true);
      setMean(tr.cells[2], same, sameHalf, row.loss === 'an', false);
      setCell(tr.cells[3], heads && row.seconds !== null ? [row.seconds, row.seconds.toFixed(0), '', ''] : ['', '–', '', '']);
      sets.forEach((set, k) => {
        const td = tr.cells[k + 4], cell = here[set]?.[choice] ? here[set] : null;
        setCell(td, cell ? parts(row, cell, show, choice) : ['', 'not run', '', 'none']);
        if (cell) opener(td, `${name}, ${row.head} head, ${titles[set]}`, behind(row, name, set, cell));
      });
      tr.classList.toggle('idle', !Object.keys(here).length);
    }
    sorters.get(board)();
    filter();
  };
  const filter = () => {
    const [paper, head] = ['paper', 'head'].map(asked), idle = document.getElementById('idle').checked, rows = boardRows();
    for (const tr of rows) {
      const { papers, head: own } = tr.dataset;
      tr.hidden = (paper && !papers.split(' ').includes(paper)) || (head && own !== head);
    }
    const matching = rows.filter((tr) => !tr.hidden), isSeen = (tr) => !tr.hidden && (idle || !tr.classList.contains('idle'));
    const seen = rows.filter(isSeen), shown = seen.length;
    for (const body of board.tBodies) body.querySelector('.group').hidden = !all('tr[data-row]', body).some(isSeen);
    const names = (rows) => new Set(rows.map((tr) => tr.querySelector('th a').textContent)), there = names(seen);
    const absent = paper && shown ? [...names(matching)].filter((name) => !there.has(name)) : [];
    document.getElementById('board-says').textContent = `${words[shownNow()]} ${shown} of ${rows.length} rows${shown ? '' : ': nothing here is run yet, spml sweep methods --suite ' + asked('trained') + ' does it'}.${absent.length ? ` Not run: ${absent.join(', ')}.` : ''}`;
  };
  form.hidden = false;
  form.addEventListener('change', fill);
  form.addEventListener('submit', (event) => event.preventDefault());
  fill();

  for (const td of all('td[data-group]')) {
    if (td.dataset.group === '') continue;
    const title = td.closest('.item').querySelector('h3').firstChild.textContent.trim(), row = td.closest('tr').cells[0].textContent.trim();
    const level = made('p', { textContent: `Level, published / ours: ${td.dataset.level}` });
    opener(td, row, () => show(made('h3', { textContent: `${title}: ${row}` }), level, ...runs(Number(td.dataset.group), row)));
  }

  // A link to something in a closed part of the page opens it; paper gets everything.
  const reveal = () => {
    const goal = location.hash && document.getElementById(location.hash.slice(1));
    if (!goal) return;
    for (let part = goal.closest('details'); part; part = part.parentElement.closest('details')) part.open = true;
    goal.scrollIntoView();
  };
  addEventListener('hashchange', reveal);
  reveal();
  addEventListener('beforeprint', () => { for (const part of all('details.item')) part.open = true; });

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
