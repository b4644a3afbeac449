"""Build one static site that needs no network, into docs/: README, the executed notebooks, the
pages of the record and the reference of every function. `make docs` calls this.

A page has the path of its source: nbs/losses.ipynb is nbs/losses.html, spml_nb/losses.py is
reference/spml_nb/losses.html; README.md is index.html. Links between sources become links between
pages.
"""

import os
import pkgutil
import re
import shutil
import sys
import warnings
from collections import Counter
from functools import cache
from html import escape, unescape
from importlib import import_module
from pathlib import Path

import jinja2
import nbformat
import pdoc
import ziamath
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename

import spml_nb

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BOARD = 'outputs/index.html'
MAP = 'spml_nb'  # the folder whose page is the map of all modules
FORMATTER = HtmlFormatter(style='xcode')

# ---- where a file of the repository is on the site


def page_of(path: str) -> str:
    """The site's address of a file or folder of the repository."""
    if path == 'README.md':
        return 'index.html'
    if path == MAP:
        return 'reference/index.html'
    if path.endswith('.py') and path.startswith(f'{MAP}/'):
        return re.sub(r'(/__init__)?\.py$', '.html', f'reference/{path}')
    if (ROOT / path).is_dir():
        return page_of(f'{path}/README.md') if has_readme(path) else f'{path}/index.html'
    return re.sub(r'\.(md|ipynb)$', '.html', path)


def has_readme(folder: str) -> bool:
    return (ROOT / folder / 'README.md').is_file()


def address(target: str, source: str) -> str:
    """The link to one page from another, both as addresses of the site."""
    return os.path.relpath(target, os.path.dirname(source) or '.')


# ---- Markdown and notebooks as HTML


def to_mathml(formula: str, display: str = 'inline') -> str:
    # two things that latex2mathml does not know
    formula = re.sub(r'\\(?:b|B)igg?[lr]?(?=\\[lr](?:floor|ceil)\b)', '', formula)
    return convert(re.sub(r'\\arg\b', r'\\operatorname{arg}', formula), display=display)


class Renderer(IPythonRenderer):
    """One page of Markdown: formulas as MathML, headings with the anchors that the sources link to,
    Jupyter's in a notebook and GitHub's elsewhere.
    """

    def __init__(self, of_notebook: bool = False):
        super().__init__(escape=False)
        self.of_notebook = of_notebook
        self.anchors = Counter()

    def heading(self, text, level, **attrs):
        anchor = unescape(re.sub(r'<[^>]+>', '', text)).strip().replace(' ', '-')
        if not self.of_notebook:
            anchor = re.sub(r'[^\w-]', '', anchor.lower())
        self.anchors[anchor] += 1
        if self.anchors[anchor] > 1:
            anchor += f'-{self.anchors[anchor] - 1}'
        return f'<h{level} id="{escape(anchor)}">{text}</h{level}>\n'

    def block_math(self, body):
        return f'<div class="scroll" tabindex="0">{to_mathml(body, "block")}</div>'

    def inline_math(self, body):
        return to_mathml(body)

    def latex_environment(self, name, body):
        return self.block_math(f'\\begin{{{name}}}{body}\\end{{{name}}}')


def render_markdown(text: str, renderer: Renderer) -> str:
    return MarkdownWithMath(renderer=renderer).render(text)


class Exporter(HTMLExporter):
    """A notebook's body as HTML, with the outputs that it was saved with."""

    def markdown2html(self, context, source):
        return render_markdown(source, self.renderer)

    def default_filters(self):
        yield from super().default_filters()
        yield 'markdown2html', lambda source: render_markdown(source, self.renderer)


def render_notebook(path: str) -> str:
    notebook = nbformat.read(ROOT / path, 4)
    cells = []
    for cell in notebook.cells:
        directives = re.findall(r'^#\| *(\w+)', cell.source, re.M) if is_code(cell) else []
        if {'hide', 'default_exp'} & set(directives):
            continue
        if is_code(cell):
            cell.source = re.sub(r'^#\|.*\n?', '', cell.source, flags=re.M)
        cells.append(cell)
    notebook.cells = cells
    exporter = Exporter(
        template_name='basic', exclude_input_prompt=True, exclude_output_prompt=True
    )
    exporter.renderer = Renderer(of_notebook=True)
    return exporter.from_notebook_node(notebook)[0]


def is_code(cell) -> bool:
    return cell.cell_type == 'code'


def render_folder(path: str) -> str:
    """A folder without README.md: its notebooks with what they are about, its scripts in full."""
    notebooks = sorted((ROOT / path).glob('**/*.ipynb'))
    lines = [f'# {path}', *map(describe_notebook, notebooks)]
    html = render_markdown('\n'.join(lines).replace(f']({path}/', ']('), Renderer())
    for file in sorted([*(ROOT / path).glob('*.py'), *(ROOT / path).glob('*.ini')]):
        code = highlight(
            file.read_text(encoding='utf-8'), get_lexer_for_filename(file.name), FORMATTER
        )
        html += f'<h2 id="{file.name}">{file.name}</h2>\n{code}'
    return html


def describe_notebook(file: Path) -> str:
    path = file.relative_to(ROOT).as_posix()
    first = nbformat.read(file, 4).cells[0].source
    remark = re.search(r'^> (.*)$', first, re.M)
    return f'- [{title_of(path)}]({path})' + (f': {remark[1]}' if remark else '')


@cache
def title_of(path: str) -> str:
    if path.endswith('.ipynb'):
        text = nbformat.read(ROOT / path, 4).cells[0].source
    else:
        text = (ROOT / path).read_text(encoding='utf-8')
    heading = re.search(r'^# (.*)$', text, re.M)
    return heading[1].replace('`', '') if heading else Path(path).stem


# ---- pages


def list_navigation() -> list[tuple[str, list[tuple[str, str]]]]:
    """The menu: groups of (label, path in the repository). Notebooks stand in the order in which
    nbs/README.md names them.
    """
    order = (ROOT / 'nbs/README.md').read_text(encoding='utf-8')
    groups = {
        'To use it': ['README.md', 'nbs/README.md'],
        'Methods': [],
        'Papers': [],
        'What they stand on': [],
        'Results': [BOARD, 'outputs/README.md'],
        'Reference': [MAP],
        'This project': ['CONTRIBUTING.md', 'TROUBLESHOOTING.md', 'CHANGELOG.md'],
    }
    notebooks = {
        file.relative_to(ROOT / 'nbs').as_posix() for file in (ROOT / 'nbs').rglob('*.ipynb')
    }
    named = [path for path in re.findall(r'\]\(([^)]+\.ipynb)\)', order) if path in notebooks]
    others = sorted(path for path in notebooks if '.ipynb_checkpoints' not in path)
    for path in dict.fromkeys([*named, *others]):
        groups[group_of(path)].append(f'nbs/{path}')
    pages = sorted(file.name for file in (ROOT / 'outputs').glob('*.md'))
    groups['Results'] += [f'outputs/{name}' for name in pages if name != 'README.md']
    return [(name, [(label_of(path), path) for path in paths]) for name, paths in groups.items()]


def group_of(notebook: str) -> str:
    folder = notebook.rpartition('/')[0]
    if folder == 'tutorials' or notebook in ('train.ipynb', 'evaluate.ipynb'):
        return 'To use it'
    if folder == 'methods' or notebook == 'losses.ipynb':
        return 'Methods'
    return 'Papers' if folder == 'papers' else 'What they stand on'


def label_of(path: str) -> str:
    names = {'README.md': 'Overview', BOARD: 'The board', MAP: 'All modules'}
    return names.get(path) or title_of(path)


class Site:
    """The folder that is being filled.

    A link leads to a page or a file; what is linked and not there yet is put there, until nothing
    is missing.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.wanted = []
        self.done = set()
        self.lost = []
        self.names = {}  # public names, and where the reference has them
        self.navigation = list_navigation()
        loader = jinja2.FileSystemLoader(HERE)
        self.layout = jinja2.Environment(loader=loader, autoescape=True).get_template('page.html')

    def write(self, page: str, text: str) -> None:
        file = self.folder / page
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding='utf-8')

    def relink(self, html: str, source: str) -> str:
        """Rewrite links and pictures of a rendered source to addresses of the site."""
        base = source if (ROOT / source).is_dir() else os.path.dirname(source)

        def replace(match):
            start, link, fragment = match.groups(default='')
            target = os.path.normpath(os.path.join(base, unescape(link)))
            if not (ROOT / target).exists() or target.startswith('..'):
                self.lost.append(f'{source}: {link}')
                return match[0]
            self.wanted.append(target)
            return f'{start}"{escape(address(page_of(target), page_of(source)))}{fragment}"'

        return re.sub(
            r'(<(?:a|img)\b[^>]*?\b(?:href|src)=)"([^"#:]+)(#[^"]*)?"', replace, html, flags=re.S
        )

    def link_code(self, html: str, source: str) -> str:
        """Make links of files and of public names that stand in the text as code."""

        def replace(match):
            text = match[1]
            link = self.names.get(text) or (page_of(text) if (ROOT / text).is_file() else None)
            if not link:
                return match[0]
            if text not in self.names:
                self.wanted.append(text)
            return f'<a href="{address(link, page_of(source))}">{match[0]}</a>'

        return re.sub(r'(?<!<pre>)(?<!">)<code>([\w./]+)</code>(?!</a>)', replace, html)

    def write_page(self, source: str, title: str, content: str) -> None:
        page = page_of(source)
        if '<h1' not in content:
            content = f'<h1>{escape(title)}</h1>\n{content}'
        content = self.link_code(self.relink(content, source), source)
        content = content.replace('<table', '<div class="scroll" tabindex="0"><table')
        content = content.replace('</table>', '</table></div>').replace('<pre', '<pre tabindex="0"')
        groups = [
            (name, [(label, address(page_of(path), page), path == source) for label, path in links])
            for name, links in self.navigation
        ]
        text = self.layout.render(
            title=title,
            content=content,
            groups=groups,
            home=address('index.html', page),
            style=address('style.css', page),
            module=address(page_of(module), page) if (module := module_of(source)) else None,
            module_name=module and module.removesuffix('.py').replace('/', '.'),
            source=source,
        )
        self.write(page, text)

    def put(self, source: str) -> None:
        """Put a file or folder of the repository there."""
        if source in self.done:
            return
        self.done.add(source)
        if source == BOARD:
            self.write(source, self.relink(give_way_back(ROOT / source), source))
        elif source.endswith('.ipynb'):
            self.write_page(source, title_of(source), render_notebook(source))
        elif source.endswith('.md'):
            text = (ROOT / source).read_text(encoding='utf-8')
            self.write_page(source, title_of(source), render_markdown(text, Renderer()))
        elif page_of(source).startswith('reference/'):
            return  # pdoc's
        elif (ROOT / source).is_dir():
            if has_readme(source):
                self.wanted.append(f'{source}/README.md')
            else:
                self.write_page(source, source, render_folder(source))
        else:
            file = self.folder / source
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, file)

    def put_all(self) -> None:
        self.wanted += [path for _, links in self.navigation for _, path in links]
        while self.wanted:
            self.put(self.wanted.pop())


def module_of(source: str) -> str | None:
    """The module that is written from a notebook."""
    module = re.sub(r'^nbs/(.*)\.ipynb$', r'spml_nb/\1.py', source)
    return module if module != source and (ROOT / module).is_file() else None


def give_way_back(board: Path) -> str:
    text = board.read_text(encoding='utf-8')
    return text.replace('<header>', '<header>\n<p><a href="../README.md">spml_nb</a></p>', 1)


# ---- the reference


def import_modules() -> list[str]:
    """Import every module, and give lazy packages the names that they list."""
    names = ['spml_nb']
    names += [module.name for module in pkgutil.walk_packages(spml_nb.__path__, 'spml_nb.')]
    names = [name for name in names if not name.rpartition('.')[2].startswith('_')]
    for name in names:
        if is_package(name):
            module = import_module(name)
            vars(module).update(
                {each: getattr(module, each) for each in getattr(module, '__all__', ())}
            )
    return names


def write_reference(site: Site) -> None:
    names = import_modules()
    pdoc.render.configure(
        docformat='google', show_source=False, template_directory=HERE / 'reference'
    )
    notebooks = {name: notebook for name in names if (notebook := notebook_of(name))}
    pdoc.render.env.globals['notebooks'] = notebooks
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)  # pdoc's of names that it does not find
        modules = {name: pdoc.doc.Module.from_name(name) for name in names}
        for name, module in modules.items():
            html = pdoc.render.html_module(module, modules)
            site.write(f'reference/{name.replace(".", "/")}.html', finish_reference(html))
        site.write('reference/search.js', pdoc.render.search_index(modules))
    site.names = index_names(modules.values())
    site.write_page(MAP, 'All modules', list_modules(names))


def index_names(modules) -> dict[str, str]:
    """Where the reference has each public name: under its full name, and under the bare one where
    only one module has it and no sentence would use it as a word.
    """
    places, homes = {}, {}
    for module in modules:
        page = f'reference/{module.fullname.replace(".", "/")}.html'
        for member in module.own_members:
            if member.kind in ('function', 'class') and not member.name.startswith('_'):
                places[member.fullname] = f'{page}#{member.qualname}'
                if member.taken_from[0] == module.modulename:
                    homes.setdefault(member.name, []).append(places[member.fullname])
    for word, found in homes.items():
        if len(found) == 1 and re.search('_|[A-Z]', word):
            places[word] = found[0]
    return places


def finish_reference(html: str) -> str:
    """Name the links of headings, and leave out links to members that torch's classes bring: the
    page has no entry for them.
    """
    html = html.replace('class="headerlink"', 'class="headerlink" aria-label="Link to this"')
    there = set(re.findall(r'\bid="([^"]+)"', html))
    link = re.compile(r'<a href="#([^"]+)">(.*?)</a>')
    return link.sub(lambda match: match[0] if match[1] in there else match[2], html)


def notebook_of(module: str) -> str | None:
    path = module.replace('spml_nb', 'nbs', 1).replace('.', '/')
    return f'{path}.html' if (ROOT / f'{path}.ipynb').is_file() else None


def list_modules(names: list[str]) -> str:
    """The map of the reference: each module with its first sentence, a heading a package."""
    by_package = {}
    for name in names:
        parts = name.split('.')
        package = '.'.join(parts[:2]) if is_package('.'.join(parts[:2])) else parts[0]
        by_package.setdefault(package, []).append(name)
    lines = ['# All modules']
    for package, modules in by_package.items():
        lines.append(f'\n## {package}\n')
        lines += map(describe_module, modules)
    return render_markdown('\n'.join(lines), Renderer())


def is_package(name: str) -> bool:
    return hasattr(import_module(name), '__path__')


def describe_module(name: str) -> str:
    module = import_module(name)
    first = (module.__doc__ or '').strip().partition('\n\n')[0].replace('\n', ' ')
    return f'- [{name}]({Path(module.__file__).relative_to(ROOT / MAP)}): {first}'


def build(folder: Path) -> None:
    """Fill a folder with the site; what was there is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    site = Site(folder)
    write_reference(site)
    site.put_all()
    font = Path(ziamath.__file__).parent / 'fonts' / 'STIXTwoMath-Regular.ttf'
    shutil.copy(font, folder / 'math.ttf')
    style = (HERE / 'style.css').read_text(encoding='utf-8')
    site.write('style.css', style + FORMATTER.get_style_defs('.highlight'))
    if site.lost:
        sys.exit('Links that lead nowhere:\n' + '\n'.join(site.lost))


if __name__ == '__main__':
    build(ROOT / 'docs')
