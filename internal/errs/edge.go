package errs

// Edge gives an error that a package returns the package's name in front, once: what it wrapped before stays as it is.
func Edge(pkg string, err error) error {
	if _, done := err.(*edged); done || err == nil {
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
