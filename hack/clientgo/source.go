package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// source is a package as text, of which some is to be cut out.
type source struct {
	fset    *token.FileSet
	files   map[string]*ast.File
	text    map[string][]byte
	named   map[string][]ast.Decl  // by what they declare; methods by their receiver's type
	in      map[ast.Decl]*ast.File // where a declaration is
	banned  map[string]bool        // names that are not in the copy
	removed map[ast.Node]bool      // elements of interfaces that are not
	kept    map[ast.Node]bool      // declarations that are
}

func parse(dir string) (*source, error) {
	p := &source{
		fset: token.NewFileSet(), files: map[string]*ast.File{}, text: map[string][]byte{}, banned: map[string]bool{},
		kept: map[ast.Node]bool{}, removed: map[ast.Node]bool{}, named: map[string][]ast.Decl{}, in: map[ast.Decl]*ast.File{},
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range paths {
		name := filepath.Base(file)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if p.text[name], err = os.ReadFile(file); err != nil {
			return nil, err
		}
		p.text[name] = []byte(replaced.Replace(string(p.text[name])))
		if p.files[name], err = parser.ParseFile(p.fset, name, p.text[name], parser.ParseComments); err != nil {
			return nil, err
		}
		for _, d := range p.files[name].Decls {
			p.in[d] = p.files[name]
			for _, n := range declared(d) {
				p.named[n] = append(p.named[n], d)
			}
		}
	}
	return p, nil
}

// declared are the names by which others reach a declaration.
func declared(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		t := d.Recv.List[0].Type
		if pointer, ok := t.(*ast.StarExpr); ok {
			t = pointer.X
		}
		return []string{t.(*ast.Ident).Name}
	case *ast.GenDecl:
		var names []string
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
		return names
	}
	return nil
}

// cut keeps what is reached from the names that are wanted, and nothing that mentions
// what is not to be imported. What only asserts that an interface is implemented goes.
func (p *source) cut(wanted []string) {
	for p.ban() {
	}
	for len(wanted) > 0 {
		name := wanted[0]
		wanted = wanted[1:]
		if name == "_" {
			continue
		}
		for _, d := range p.named[name] {
			if p.kept[d] || p.mentions(d, d) {
				continue
			}
			p.kept[d] = true
			p.walk(d, func(id *ast.Ident) { wanted = append(wanted, id.Name) })
		}
	}
}

func isMethod(d ast.Decl) bool {
	f, ok := d.(*ast.FuncDecl)
	return ok && f.Recv != nil
}

// ban takes out what mentions a name that is banned, and tells whether there was any. Of
// an interface only the element goes.
func (p *source) ban() (more bool) {
	for d := range p.in {
		ast.Inspect(d, func(n ast.Node) bool {
			i, ok := n.(*ast.InterfaceType)
			if !ok {
				return true
			}
			for _, e := range i.Methods.List {
				if !p.removed[e] && p.mentions(e, d) {
					p.removed[e], more = true, true
				}
			}
			return true
		})
		if !isMethod(d) && p.mentions(d, d) {
			for _, name := range declared(d) {
				if name != "_" && !p.banned[name] {
					p.banned[name], more = true, true
				}
			}
		}
	}
	return more
}

// mentions tells whether n, which is of d, mentions what is not in the copy.
func (p *source) mentions(n ast.Node, d ast.Decl) bool {
	found := false
	unwanted := map[string]bool{}
	for _, i := range p.in[d].Imports {
		to, ok := rewrite(importPath(i))
		if ok && to == "" {
			unwanted[importName(i)] = true
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if n == nil || p.removed[n] {
			return false
		}
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && unwanted[x.Name] {
				found = true
			}
		}
		return true
	})
	p.walk(n, func(id *ast.Ident) { found = found || p.banned[id.Name] })
	return found
}

// walk calls each for the names that may be of the package.
func (p *source) walk(n ast.Node, each func(*ast.Ident)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr: // what is selected is not
			p.walk(n.X, each)
			return false
		case *ast.Ident:
			each(n)
		}
		return n != nil && !p.removed[n]
	})
}

func importPath(i *ast.ImportSpec) string {
	s, _ := strconv.Unquote(i.Path.Value)
	return s
}

// importName is the name of the package where none is given: the last element that is
// no version.
func importName(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name
	}
	at := importPath(i)
	if base := path.Base(at); len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		at = path.Dir(at)
	}
	return path.Base(at)
}

// span is a part of a file.
type span struct{ from, to int }

// file is the copy of a file, nil if nothing is left of it.
func (p *source) file(name string) ([]byte, error) {
	cuts, used, empty := p.cuts(p.files[name])
	if empty {
		return nil, nil
	}
	var out bytes.Buffer
	text, at := p.text[name], 0
	skip := func(s span) {
		out.Write(text[at:s.from])
		at = s.to
	}
	for _, i := range p.files[name].Imports {
		to, ok := rewrite(importPath(i))
		switch {
		case !used[importName(i)]:
			skip(p.span(i.Pos(), i.End()))
		case ok:
			skip(p.span(i.Pos(), i.End()))
			fmt.Fprintf(&out, "%s %q", importName(i), to)
		}
	}
	for _, c := range cuts {
		skip(c)
	}
	out.Write(text[at:])
	return format.Source(out.Bytes())
}

// cuts gives the parts of a file that go, in their order, the names that the rest may
// have of its imports, and whether there is no rest.
func (p *source) cuts(f *ast.File) (cuts []span, used map[string]bool, empty bool) {
	used, empty = map[string]bool{}, true
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			continue
		}
		if !p.kept[d] {
			cuts = append(cuts, p.span(start(d), d.End()))
			continue
		}
		empty = false
		ast.Inspect(d, func(n ast.Node) bool {
			if e, ok := n.(*ast.Field); ok && p.removed[e] {
				from := e.Pos()
				if e.Doc != nil {
					from = e.Doc.Pos()
				}
				cuts = append(cuts, p.span(from, e.End()))
				return false
			}
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok {
					used[x.Name] = true
				}
			}
			return true
		})
	}
	slices.SortFunc(cuts, func(a, b span) int { return a.from - b.from })
	return cuts, used, empty
}

func (p *source) span(from, to token.Pos) span {
	return span{p.fset.Position(from).Offset, p.fset.Position(to).Offset}
}

// start is where a declaration begins, with what is said of it.
func start(d ast.Decl) token.Pos {
	switch d := d.(type) {
	case *ast.GenDecl:
		if d.Doc != nil {
			return d.Doc.Pos()
		}
	case *ast.FuncDecl:
		if d.Doc != nil {
			return d.Doc.Pos()
		}
	}
	return d.Pos()
}
