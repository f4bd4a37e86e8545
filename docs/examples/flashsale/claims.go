package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

const (
	// maxUser is the longest user id taken, in bytes: what one claim may cost in memory and in Redis.
	maxUser = 1 << 10
	// maxLine is the longest line taken, in bytes. The rest of a longer one is skipped without being held.
	maxLine = 1 << 20
)

// claim is one line of the input. Lines are numbered from 1, and the number names the claim from here to its answer.
type claim struct {
	line int64
	user string
}

// source is where claims come from. next returns io.EOF after the last; a *malformed error concerns one line only, and
// the next call goes on behind it.
type source interface{ next() (claim, error) }

// malformed says why a line is not a claim.
type malformed struct {
	line int64
	why  string
	text string // how the line begins
}

func (m *malformed) Error() string {
	if m.text == "" {
		return m.why
	}
	return fmt.Sprintf("%s: %s", m.why, m.text)
}

// crowd is the simulated input: every user claims once.
type crowd struct{ n, users int64 }

func (c *crowd) next() (claim, error) {
	if c.n == c.users {
		return claim{}, io.EOF
	}
	c.n++
	return claim{line: c.n, user: fmt.Sprintf("user-%05d", c.n)}, nil
}

// headers are the first fields that make the first line a header, whatever their case.
var headers = []string{"user", "user_id", "user-id", "user id", "userid", "id", "uid", "claimant"}

// claimFile reads claims from CSV, one line at a time. A quoted field has to end on its line: a stray quote costs one
// line, not the rest of the file.
type claimFile struct {
	r      *bufio.Reader
	line   int64
	read   atomic.Int64 // bytes
	size   int64        // 0 if unknown
	header string
	long   []byte // a line that did not fit r's buffer
}

func newClaimFile(r io.Reader, size int64) *claimFile {
	return &claimFile{r: bufio.NewReaderSize(r, 64<<10), size: size}
}

// openClaims opens a file of claims; "-" is stdin.
func openClaims(name string, stdin io.Reader) (*claimFile, io.Closer, error) {
	if name == "-" {
		return newClaimFile(stdin, 0), io.NopCloser(nil), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, plain(err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = errors.New("is a directory")
	}
	if err != nil {
		f.Close()
		return nil, nil, plain(err)
	}
	if !info.Mode().IsRegular() {
		return newClaimFile(f, 0), f, nil
	}
	c := newClaimFile(f, info.Size())
	if err := c.checkStart(); err != nil {
		f.Close()
		return nil, nil, err
	}
	return c, f, nil
}

// checkStart refuses what cannot be read as lines of UTF-8, or cannot be read at all, before any work.
func (f *claimFile) checkStart() error {
	b, err := f.r.Peek(2)
	if err != nil && err != io.EOF {
		return plain(err)
	}
	if string(b) == "\xff\xfe" || string(b) == "\xfe\xff" {
		return errors.New("is UTF-16, want UTF-8 (a spreadsheet saves it as \"CSV UTF-8\")")
	}
	return nil
}

// done is how much of the file has been read, in percent; ok is false if its size is unknown. It may be called at any
// time.
func (f *claimFile) done() (percent int64, ok bool) {
	if f.size == 0 {
		return 0, false
	}
	return min(100, f.read.Load()*100/f.size), true
}

func (f *claimFile) next() (claim, error) {
	if f.line == 0 {
		if err := f.checkStart(); err != nil {
			return claim{}, err
		}
	}
	b, tooLong, err := f.readLine()
	if err != nil {
		return claim{}, err
	}
	f.line++
	if f.line == 1 {
		b = bytes.TrimPrefix(b, []byte("\ufeff"))
	}
	user, why := parseUser(b)
	if tooLong {
		why = fmt.Sprintf("the line is longer than %s bytes", group(maxLine))
	}
	if why != "" {
		return claim{}, &malformed{line: f.line, why: why, text: excerpt(b)}
	}
	if f.line == 1 && slices.Contains(headers, strings.ToLower(user)) {
		f.header = user
		return f.next()
	}
	return claim{line: f.line, user: user}, nil
}

// readLine returns the next line without its end. The bytes are good until the next call.
func (f *claimFile) readLine() (line []byte, tooLong bool, err error) {
	f.long = f.long[:0]
	for {
		b, err := f.r.ReadSlice('\n')
		f.read.Add(int64(len(b)))
		if len(f.long) > 0 || errors.Is(err, bufio.ErrBufferFull) {
			if len(f.long)+len(b) > maxLine {
				tooLong = true
				b = b[:maxLine-len(f.long)]
			}
			f.long = append(f.long, b...)
			b = f.long
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(b) == 0:
			return nil, false, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, false, plain(err)
		}
		b = bytes.TrimSuffix(b, []byte("\n"))
		return bytes.TrimSuffix(b, []byte("\r")), tooLong, nil
	}
}

// parseUser returns the user id of a line, or why there is none.
func parseUser(line []byte) (user, why string) {
	if len(line) == 0 {
		return "", "the line is empty"
	}
	field, why := firstField(line)
	if why != "" {
		return "", why
	}
	user = strings.TrimSpace(string(field))
	switch {
	case user == "":
		return "", "the user id is blank"
	case len(user) > maxUser:
		return "", fmt.Sprintf("the user id has %s bytes, more than %s", group(int64(len(user))), group(maxUser))
	case !utf8.ValidString(user):
		return "", "the user id is not valid UTF-8"
	case strings.ContainsFunc(user, unicode.IsControl):
		return "", "the user id contains a control character"
	}
	return user, ""
}

// firstField is the first field of a CSV line. The other fields are not used, but their quotes are checked, by the
// rules of encoding/csv: a quoted field ends with a quote before a comma or the end of the line, quotes inside it are
// doubled, and no other field contains one.
func firstField(line []byte) (first []byte, why string) {
	if bytes.IndexByte(line, '"') < 0 {
		if i := bytes.IndexByte(line, ','); i >= 0 {
			return line[:i], ""
		}
		return line, ""
	}
	for n, rest := 1, line; ; n++ {
		var field []byte
		if len(rest) > 0 && rest[0] == '"' {
			field, rest, why = quotedField(rest[1:])
		} else {
			field, rest, why = plainField(rest)
		}
		if why != "" {
			return nil, fmt.Sprintf(why, n)
		}
		if n == 1 {
			first = field
		}
		if len(rest) == 0 {
			return first, ""
		}
		rest = rest[1:]
	}
}

// quotedField reads a field whose first quote was read. why, which takes the column, is "" if there is one.
func quotedField(line []byte) (field, rest []byte, why string) {
	for rest = line; ; rest = rest[1:] {
		i := bytes.IndexByte(rest, '"')
		if i < 0 {
			return nil, nil, "the quote of column %d does not end on this line"
		}
		field = append(field, rest[:i]...)
		rest = rest[i+1:]
		if len(rest) == 0 || rest[0] == ',' {
			return field, rest, ""
		}
		if rest[0] != '"' {
			return nil, nil, "text follows the closing quote of column %d"
		}
		field = append(field, '"')
	}
}

// plainField reads a field that does not begin with a quote, as quotedField does.
func plainField(line []byte) (field, rest []byte, why string) {
	end := bytes.IndexByte(line, ',')
	if end < 0 {
		end = len(line)
	}
	if bytes.IndexByte(line[:end], '"') >= 0 {
		return nil, nil, "column %d has a quote in the middle"
	}
	return line[:end], line[end:], ""
}

// excerpt quotes the beginning of a line for a message.
func excerpt(line []byte) string {
	if len(line) == 0 {
		return ""
	}
	const most = 40
	s, more := string(line[:min(len(line), most)]), ""
	if len(line) > most {
		more = "…"
	}
	return fmt.Sprintf("%q%s", s, more)
}

// plain drops the operation and the path from a file error: the message around it names the flag and the file.
func plain(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
