// Package accessor gives packages of this module, and the debug page (package redlatchdebug), access to unexported
// parts of the types of the public packages.
//
// Each public package registers the accessors of its types in an init. Otherwise the types would have exported methods
// that are of no use to users, or the page would have to be part of the package that everybody links.
//
// The hub is not an alias of a type in an internal package either: go doc and pkg.go.dev show no methods of an alias,
// so that users would find no documentation of Subscribe and Close.
package accessor

import "reflect"

// types are those that an accessor takes and returns.
type types struct{ of, as reflect.Type }

var accessors = map[types]func(any) any{}

// Register registers the accessor that returns the I of a C. Only init functions call it.
func Register[C, I any](get func(C) I) {
	accessors[types{reflect.TypeFor[C](), reflect.TypeFor[I]()}] = func(c any) any { return get(c.(C)) }
}

// Of returns the I of c. The package of C has called Register for both types.
func Of[I, C any](c C) I { return accessors[types{reflect.TypeFor[C](), reflect.TypeFor[I]()}](c).(I) }
