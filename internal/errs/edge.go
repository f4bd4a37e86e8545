package errs

// Edge returns err with the name of the package that returns it in front. An error that has one already stays as it is.
func Edge(pkg string, err error) error {
	if _, done := err.(*edged); done || err == nil { //nolint:errorlint // the outermost: what is inside is not in front
		return err
	}
	return &edged{pkg, err}
}

type edged struct {
	pkg string
	error
}

func (e *edged) Error() string { return e.pkg + ": " + e.error.Error() }
func (e *edged) Unwrap() error { return e.error }
