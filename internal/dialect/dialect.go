// Package dialect says whether a script keeps to the Lua that servers behind a proxy, and those with more than one
// thread, accept: see docs/design.md. It reads the syntax tree of the script, and runs nothing. Only tests import it.
//
// Each command is called by redis.call or redis.pcall, where its name is a literal. These two are used for nothing
// else, so what a script calls can be read off.
//
// Each key of a command is nil, false or an element of KEYS, whatever path the script takes. To show that, every
// variable is taken for a key, and for a table of keys, until something else is assigned to it anywhere. A parameter is
// assigned by each call of its function. This is repeated until nothing changes (a greatest fixed point), so what is
// called a key here is one:
//
//   - Names are resolved by scope, as Lua does. A script has no globals of its own.
//   - A field is one variable for all tables that have a field of that name.
//   - A table that is assigned from one variable to another is that of both: what spoils one spoils the other. One that
//     is given to a function that is not the script's own is not known any more. One with a computed index, which may
//     be the name of a field, has no fields that are keys. The elements of a table are one variable.
//   - The parameters of a function that is used otherwise than called are not known.
package dialect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// Script is what a script is found to do.
type Script struct {
	Wrong    []string // what the dialect forbids, each with its line
	Commands []string // what it calls, sorted and in capitals: PUBSUB|NUMSUB with its subcommand

	keys    *variable // KEYS
	fields  map[string]*variable
	changed bool
	final   bool // nothing changes any more: say what is wrong
}

// variable is what is known of a variable, of a field, or of one of a function's results.
type variable struct {
	noKey    bool      // it may be something else than a key
	noTable  bool      // or than a table of keys
	computed bool      // an index of its table was computed, which may be the name of any field
	element  *variable // all elements of its table
	fn       *function // the one function that it is, of a local function
}

// function is a local function, and what is known of its parameters and results.
type function struct {
	expr    *ast.FunctionExpr
	params  []*variable
	results []*variable
	rest    variable // its varargs
	escapes bool
}

type scope struct {
	up    *scope
	names map[string]*variable
	in    *function
}

func (s *scope) find(name string) *variable {
	for ; s != nil; s = s.up {
		if v := s.names[name]; v != nil {
			return v
		}
	}
	return nil
}

func (s *scope) inner() *scope { return &scope{up: s, names: map[string]*variable{}, in: s.in} }

// Read reads the text of a script. The error is that of a text which is no Lua.
func Read(text string) (*Script, error) {
	chunk, err := parse.Parse(strings.NewReader(text), "script")
	if err != nil {
		return nil, err
	}
	l := &Script{keys: &variable{noKey: true}, fields: map[string]*variable{}}
	kept := memo{vars: map[any][]*variable{}, fns: map[*ast.FunctionExpr]*function{}}
	main := &function{expr: &ast.FunctionExpr{}}
	for l.changed = true; l.changed || !l.final; {
		l.final = !l.changed
		l.changed = false
		w := &walk{l, kept}
		w.block(chunk, &scope{names: map[string]*variable{}, in: main})
	}
	slices.Sort(l.Commands)
	slices.Sort(l.Wrong)
	l.Wrong = slices.Compact(l.Wrong)
	return l, nil
}

// memo keeps the variables of a place in the tree from pass to pass.
type memo struct {
	vars map[any][]*variable
	fns  map[*ast.FunctionExpr]*function
}

type walk struct {
	*Script
	memo
}

func (w *walk) report(line int, format string, args ...any) {
	if w.final {
		w.Wrong = append(w.Wrong, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, args...))
	}
}

// declare are the variables of a place, the same in each pass.
func (w *walk) declare(at any, s *scope, names ...string) []*variable {
	vars := w.vars[at]
	if vars == nil {
		for range names {
			vars = append(vars, &variable{})
		}
		w.vars[at] = vars
	}
	for i, name := range names {
		s.names[name] = vars[i]
	}
	return vars
}

func (w *walk) block(stmts []ast.Stmt, s *scope) {
	for _, stmt := range stmts {
		w.stmt(stmt, s)
	}
}

func (w *walk) stmt(stmt ast.Stmt, s *scope) {
	switch x := stmt.(type) {
	case *ast.LocalAssignStmt:
		w.local(x, s)
	case *ast.AssignStmt:
		values := w.values(x.Rhs, len(x.Lhs), s)
		for i, to := range x.Lhs {
			w.assignTo(to, values[i], s)
		}
	case *ast.FuncCallStmt:
		w.value(x.Expr, s)
	case *ast.DoBlockStmt:
		w.block(x.Stmts, s.inner())
	case *ast.WhileStmt:
		w.value(x.Condition, s)
		w.block(x.Stmts, s.inner())
	case *ast.RepeatStmt:
		in := s.inner()
		w.block(x.Stmts, in)
		w.value(x.Condition, in)
	case *ast.IfStmt:
		w.value(x.Condition, s)
		w.block(x.Then, s.inner())
		w.block(x.Else, s.inner())
	case *ast.NumberForStmt:
		w.values([]ast.Expr{x.Init, x.Limit, x.Step}, 0, s)
		in := s.inner()
		w.assign(w.declare(x, in, x.Name)[0], other)
		w.block(x.Stmts, in)
	case *ast.GenericForStmt:
		w.generic(x, s)
	case *ast.ReturnStmt:
		w.returns(x, s)
	case *ast.BreakStmt:
	default:
		w.report(stmt.Line(), "a statement of a form that the lint does not know: %T", stmt)
	}
}

func (w *walk) local(x *ast.LocalAssignStmt, s *scope) {
	if len(x.Exprs) == 1 && len(x.Names) == 1 {
		if fn, is := x.Exprs[0].(*ast.FunctionExpr); is {
			f := w.function(fn)
			v := w.declare(x, s, x.Names[0])[0] // the function may call itself
			v.fn = f
			w.assign(v, other)
			w.body(f, s)
			return
		}
	}
	values := w.values(x.Exprs, len(x.Names), s)
	for i, v := range w.declare(x, s, x.Names...) {
		w.assign(v, values[i])
	}
}

// generic: the elements of a table of keys, in "for i, key in ipairs(keys)", are keys.
func (w *walk) generic(x *ast.GenericForStmt, s *scope) {
	elements := other
	if call, is := x.Exprs[0].(*ast.FuncCallExpr); is && len(x.Exprs) == 1 && len(call.Args) == 1 {
		if name := nameOf(call.Func); name == "ipairs" || name == "pairs" {
			elements.key = w.value(call.Args[0], s).table
		}
	}
	w.values(x.Exprs, 0, s)
	in := s.inner()
	for i, v := range w.declare(x, in, x.Names...) {
		if i == 1 {
			w.assign(v, elements)
		} else {
			w.assign(v, other)
		}
	}
	w.block(x.Stmts, in)
}

func (w *walk) returns(x *ast.ReturnStmt, s *scope) {
	f := s.in
	values := w.values(x.Exprs, len(x.Exprs), s)
	for len(f.results) < len(values) {
		f.results = append(f.results, &variable{})
		w.changed = true
	}
	for i, v := range f.results {
		if i < len(values) {
			w.assign(v, values[i])
		}
	}
	if n := len(x.Exprs); n > 0 && many(x.Exprs[n-1]) { // as many as there may be: none of them is known
		for _, v := range f.results[n-1:] {
			w.assign(v, other)
		}
	}
}

// many reports whether an expression that stands last may have any number of values.
func many(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.FuncCallExpr:
		return !x.AdjustRet
	case *ast.Comma3Expr:
		return !x.AdjustRet
	}
	return false
}

// values are those of a list of expressions, as many as are wanted; for 0, one for each.
func (w *walk) values(exprs []ast.Expr, wanted int, s *scope) (all []value) {
	for i, e := range exprs {
		switch {
		case e == nil:
		case i == len(exprs)-1 && many(e) && wanted > i:
			all = append(all, w.several(e, wanted-i, s)...)
		default:
			all = append(all, w.value(e, s))
		}
	}
	for len(all) < wanted {
		all = append(all, nothing)
	}
	return all
}

// several are the values of a call that stands last.
func (w *walk) several(e ast.Expr, wanted int, s *scope) (all []value) {
	first := w.value(e, s)
	for i := range wanted {
		v := other
		switch x := e.(type) {
		case *ast.Comma3Expr:
			v = first
		case *ast.FuncCallExpr:
			if f := w.called(x, s); f != nil && i < len(f.results) {
				v = of(f.results[i])
			} else if f != nil {
				v = nothing
			} else if nameOf(x.Func) == "unpack" {
				v = first
			}
		}
		all = append(all, v)
	}
	return all
}

// assignTo notes what is assigned to a variable or into a table.
func (w *walk) assignTo(to ast.Expr, v value, s *scope) {
	switch x := to.(type) {
	case *ast.IdentExpr:
		local := s.find(x.Value)
		if local == nil {
			w.report(x.Line(), "assigns to %s, which is no local variable", x.Value)
			return
		}
		if local.fn != nil {
			local.fn.escapes = true
		}
		w.assign(local, v)
	case *ast.AttrGetExpr:
		object := w.value(x.Object, s)
		if name, is := x.Key.(*ast.StringExpr); is {
			w.assign(w.field(name.Value), v)
		} else {
			w.value(x.Key, s)
			w.assignElement(object, x.Key, v)
		}
		for _, from := range object.from {
			if !v.key {
				w.set(&from.noTable)
			}
		}
	}
}

// assignElement notes what is assigned to an element of a table whose key is no word.
func (w *walk) assignElement(object value, key ast.Expr, v value) {
	if len(object.from) == 0 {
		w.lose(v)
	}
	for _, from := range object.from {
		w.assign(w.elementOf(from), v)
		if !isNumber(key) {
			w.set(&from.computed)
		}
	}
}

func (w *walk) field(name string) *variable {
	v := w.fields[name]
	if v == nil {
		v = &variable{}
		w.fields[name] = v
	}
	return v
}

// isNumber reports whether an index is a number by its form: an element of a list.
func isNumber(e ast.Expr) bool {
	switch e.(type) {
	case *ast.NumberExpr, *ast.ArithmeticOpExpr, *ast.UnaryLenOpExpr, *ast.UnaryMinusOpExpr:
		return true
	}
	return false
}

func nameOf(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.IdentExpr:
		return x.Value
	case *ast.AttrGetExpr:
		if name, is := x.Key.(*ast.StringExpr); is {
			if of := nameOf(x.Object); of != "" {
				return of + "." + name.Value
			}
		}
	}
	return ""
}

// value says what is known of an expression, and sees to the calls in it.
func (w *walk) value(e ast.Expr, s *scope) value {
	switch x := e.(type) {
	case *ast.NilExpr, *ast.FalseExpr:
		return nothing
	case *ast.IdentExpr:
		return w.ident(x, s)
	case *ast.AttrGetExpr:
		return w.index(x, s)
	case *ast.Comma3Expr:
		return value{key: !s.in.rest.noKey, from: []*variable{&s.in.rest}}
	case *ast.TableExpr:
		return w.table(x, s)
	case *ast.LogicalOpExpr:
		a, b := w.value(x.Lhs, s), w.value(x.Rhs, s)
		if x.Operator == "and" { // what is false is no key that is looked at
			return b
		}
		return value{a.key && b.key, a.table && b.table, slices.Concat(a.from, b.from)}
	case *ast.RelationalOpExpr:
		w.values([]ast.Expr{x.Lhs, x.Rhs}, 0, s)
	case *ast.ArithmeticOpExpr:
		w.values([]ast.Expr{x.Lhs, x.Rhs}, 0, s)
	case *ast.StringConcatOpExpr:
		w.values([]ast.Expr{x.Lhs, x.Rhs}, 0, s)
	case *ast.UnaryMinusOpExpr:
		w.value(x.Expr, s)
	case *ast.UnaryNotOpExpr:
		w.value(x.Expr, s)
	case *ast.UnaryLenOpExpr:
		w.value(x.Expr, s)
	case *ast.FunctionExpr: // without a name: it is called by whatever it is given to
		f := w.function(x)
		f.escapes = true
		w.body(f, s)
	case *ast.FuncCallExpr:
		return w.call(x, s)
	}
	return other
}

func (w *walk) ident(x *ast.IdentExpr, s *scope) value {
	v := s.find(x.Value)
	switch {
	case v != nil:
		if v.fn != nil && !v.fn.escapes {
			v.fn.escapes, w.changed = true, true
		}
		return of(v)
	case x.Value == "KEYS":
		return of(w.keys)
	case x.Value == "redis":
		w.report(x.Line(), "uses redis otherwise than to call a function of it")
	case !slices.Contains(globals, x.Value):
		w.report(x.Line(), "uses %s, which the dialect has not", x.Value)
	}
	return other
}

func (w *walk) index(x *ast.AttrGetExpr, s *scope) value {
	if name := nameOf(x); strings.HasPrefix(name, "redis.") && s.find("redis") == nil {
		w.report(x.Line(), "uses %s otherwise than to call it", name)
		return other
	}
	object := w.value(x.Object, s)
	if name, is := x.Key.(*ast.StringExpr); is {
		v := of(w.field(name.Value))
		for _, from := range object.from {
			if from.computed {
				v.key, v.table = false, false
			}
		}
		if len(object.from) == 0 {
			v.key, v.table = false, false
		}
		return v
	}
	w.value(x.Key, s)
	v := value{key: object.table}
	for _, from := range object.from {
		if from != w.keys {
			v.from = append(v.from, w.elementOf(from))
		}
	}
	return v
}

func (w *walk) table(x *ast.TableExpr, s *scope) value {
	made, elements := w.declare(x, s, "")[0], true
	for i, f := range x.Fields {
		var v value
		if f.Key == nil && i == len(x.Fields)-1 && many(f.Value) {
			v = w.several(f.Value, 1, s)[0]
			if call, is := f.Value.(*ast.FuncCallExpr); !is || nameOf(call.Func) != "unpack" {
				v.key = false
			}
		} else {
			v = w.value(f.Value, s)
		}
		elements = elements && v.key
		if name, is := f.Key.(*ast.StringExpr); is {
			w.assign(w.field(name.Value), v)
			continue
		}
		if f.Key != nil {
			w.value(f.Key, s)
			elements = false
			w.set(&made.computed)
		}
		w.assign(w.elementOf(made), v)
	}
	if !elements {
		w.set(&made.noTable)
	}
	return of(made)
}

// function is what is known of a function, the same in each pass.
func (w *walk) function(x *ast.FunctionExpr) *function {
	f := w.fns[x]
	if f == nil {
		f = &function{expr: x}
		w.fns[x] = f
	}
	return f
}

func (w *walk) body(f *function, s *scope) {
	in := s.inner()
	in.in = f
	f.params = w.declare(f.expr, in, f.expr.ParList.Names...)
	if f.escapes {
		for _, p := range append(slices.Clone(f.params), &f.rest) {
			w.assign(p, other)
		}
	}
	w.block(f.expr.Stmts, in)
}

// called is the local function that a call calls; nil: it is another.
func (w *walk) called(x *ast.FuncCallExpr, s *scope) *function {
	if ident, is := x.Func.(*ast.IdentExpr); is {
		if v := s.find(ident.Value); v != nil && v.fn != nil && !v.fn.escapes {
			return v.fn
		}
	}
	return nil
}

func (w *walk) call(x *ast.FuncCallExpr, s *scope) value {
	name := nameOf(x.Func)
	if x.Receiver != nil { // a method of a string
		w.value(x.Receiver, s)
		w.values(x.Args, 0, s)
		return other
	}
	if strings.HasPrefix(name, "redis.") && s.find("redis") == nil {
		w.command(x, name, s)
		return other
	}
	if f := w.called(x, s); f != nil {
		w.arguments(x, f, s)
		if len(f.results) == 0 {
			return nothing
		}
		return of(f.results[0])
	}
	w.value(x.Func, s)
	if name == "unpack" && s.find(name) == nil && len(x.Args) > 0 {
		w.values(x.Args[1:], 0, s)
		return value{key: w.value(x.Args[0], s).table}
	}
	for _, v := range w.values(x.Args, 0, s) {
		if s.find(name) != nil || !slices.Contains(pure, name) {
			w.lose(v)
		}
	}
	return other
}

func (w *walk) arguments(x *ast.FuncCallExpr, f *function, s *scope) {
	values := w.values(x.Args, max(len(x.Args), len(f.params)), s)
	for i, v := range values {
		if i < len(f.params) {
			w.assign(f.params[i], v)
		} else {
			w.assign(&f.rest, v)
		}
	}
	if n := len(x.Args); n > 0 && many(x.Args[n-1]) && n >= len(f.params) {
		w.assign(&f.rest, w.several(x.Args[n-1], 1, s)[0])
	}
}
