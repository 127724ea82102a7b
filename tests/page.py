"""A page as a browser would take it apart."""

from html.parser import HTMLParser

VOID = {"meta", "img", "path", "use"}


class Page(HTMLParser):
    """Tags with attributes and the text inside each, in the page's order; fails on a tag closed out of turn."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.open = text, [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes), []))
        if tag not in VOID:
            self.open.append(self.tags[-1])

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, text):
        for _, _, inside in self.open:
            inside.append(text)

    def texts(self, tag, **attributes):
        found = [(values, inside) for name, values, inside in self.tags if name == tag]
        return ["".join(inside).strip() for values, inside in found if attributes.items() <= values.items()]

    def values(self, attribute):
        return [values[attribute] for _, values, _ in self.tags if attribute in values]
