package main

import (
	"encoding/csv"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// readAll returns the users by line, and the reasons of the malformed lines by line.
func readAll(t *testing.T, src source) (users map[int64]string, why map[int64]string) {
	t.Helper()
	users, why = map[int64]string{}, map[int64]string{}
	for {
		c, err := src.next()
		var bad *malformed
		switch {
		case errors.Is(err, io.EOF):
			return users, why
		case errors.As(err, &bad):
			why[bad.line] = bad.why
		default:
			require.NoError(t, err)
			users[c.line] = c.user
		}
	}
}

func TestEveryLineIsAClaimOrIsReported(t *testing.T) {
	long := strings.Repeat("x", maxUser)
	for _, c := range []struct {
		name, in string
		users    map[int64]string
		why      map[int64]string
	}{
		{"nothing", "", map[int64]string{}, map[int64]string{}},
		{"no end of the last line", "a\nb", map[int64]string{1: "a", 2: "b"}, map[int64]string{}},
		{"columns and spaces", "a,1,2\n  b \t,x\nc d,", map[int64]string{1: "a", 2: "b", 3: "c d"}, map[int64]string{}},
		{"Windows", "\ufeffUSER_ID,at\r\na,1\r\nb\r\n", map[int64]string{2: "a", 3: "b"}, map[int64]string{}},
		{"quotes", "\"a\"\n\"b,c\",1\n\"d\"\"e\",\"f\"\n\"\ufeff g\"",
			map[int64]string{1: "a", 2: "b,c", 3: `d"e`, 4: "\ufeff g"}, map[int64]string{}},
		{
			"a stray quote costs one line", "a\n\"b\nc,\"d\ne\n\"f\"g,h\ni,j\"k\nl",
			map[int64]string{1: "a", 4: "e", 7: "l"},
			map[int64]string{
				2: "the quote of column 1 does not end on this line", 3: "the quote of column 2 does not end on this line",
				5: "text follows the closing quote of column 1", 6: "column 2 has a quote in the middle",
			},
		},
		{
			"blank", "a\n\n ,x\n\"\",y\n,\n\t\n\r\nb\n",
			map[int64]string{1: "a", 8: "b"},
			map[int64]string{
				2: "the line is empty", 3: "the user id is blank", 4: "the user id is blank", 5: "the user id is blank",
				6: "the user id is blank", 7: "the line is empty",
			},
		},
		{
			"ids that cannot be", long + "\n" + long + "y,1\n\xff\xfe,1\na\x00b\na\tb,1\nok",
			map[int64]string{1: long, 6: "ok"},
			map[int64]string{
				2: "the user id has 1,025 bytes, more than 1,024", 3: "the user id is not valid UTF-8",
				4: "the user id contains a control character", 5: "the user id contains a control character",
			},
		},
		{
			"long lines", "a," + strings.Repeat("x", 100<<10) + "\nb," + strings.Repeat("y", 3*maxLine) + "\nc\n",
			map[int64]string{1: "a", 3: "c"},
			map[int64]string{2: "the line is longer than 1,048,576 bytes"},
		},
		{"a line of the longest length", "a," + strings.Repeat("x", maxLine-3) + "\nb", map[int64]string{1: "a", 2: "b"},
			map[int64]string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			users, why := readAll(t, newClaimFile(strings.NewReader(c.in), 0))
			require.Equal(t, c.users, users)
			require.Equal(t, c.why, why)
		})
	}
}

func TestOnlyTheFirstLineCanBeAHeader(t *testing.T) {
	for _, h := range []string{"user", "User_ID", "user-id", "USER ID", `"userid"`, " id ", "uid", "Claimant"} {
		f := newClaimFile(strings.NewReader(h+",x\nanna\n"+h+"\n"), 0)
		users, why := readAll(t, f)
		require.Empty(t, why)
		require.Len(t, users, 2, h)
		require.Equal(t, "anna", users[2])
		require.NotEmpty(t, users[3], "below the first line it is a user")
		require.NotEmpty(t, f.header)
	}
	users, _ := readAll(t, newClaimFile(strings.NewReader("users\nanna"), 0))
	require.Len(t, users, 2)
}

func TestQuotesAreReadAsEncodingCSVDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const alphabet = `ab,," "`
	for range 50_000 {
		b := make([]byte, 1+r.IntN(12))
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		c := csv.NewReader(strings.NewReader(string(b)))
		c.FieldsPerRecord = -1
		want, err := c.Read()
		got, why := firstField(b)
		if err != nil {
			require.NotEmpty(t, why, "%q: %v", b, err)
			continue
		}
		require.Empty(t, why, "%q", b)
		require.Equal(t, want[0], string(got), "%q", b)
	}
}

func TestUnreadableClaimsAreRefused(t *testing.T) {
	dir := t.TempDir()
	_, _, err := openClaims(filepath.Join(dir, "none"), nil)
	require.EqualError(t, err, "no such file or directory")
	_, _, err = openClaims(dir, nil)
	require.EqualError(t, err, "is a directory")
	wide := filepath.Join(dir, "wide.csv")
	require.NoError(t, os.WriteFile(wide, []byte("\xff\xfeu\x00\n\x00"), 0o600))
	_, _, err = openClaims(wide, nil)
	require.ErrorContains(t, err, "is UTF-16, want UTF-8")
}

func TestABrokenReaderIsNoEndOfInput(t *testing.T) {
	broken := errors.New("disk on fire")
	f := newClaimFile(io.MultiReader(strings.NewReader("a\nb"), iotestErr{broken}), 0)
	c, err := f.next()
	require.NoError(t, err)
	require.Equal(t, claim{1, "a"}, c)
	_, err = f.next()
	require.ErrorIs(t, err, broken, "what there is of the second line may be half of it")
}

type iotestErr struct{ err error }

func (e iotestErr) Read([]byte) (int, error) { return 0, e.err }

func TestTheCrowdClaimsOnceEach(t *testing.T) {
	users, why := readAll(t, &crowd{users: 1000})
	require.Empty(t, why)
	distinct := map[string]bool{}
	for _, u := range users {
		distinct[u] = true
	}
	require.Len(t, distinct, 1000)
}
