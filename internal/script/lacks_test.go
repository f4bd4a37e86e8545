package script_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// The texts are those of package profiles, and such as must not be taken for them.
func TestUnsupported_ServersWords_AreToldApart(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	c := s.Client(t)
	for text, unsupported := range map[string]bool{
		"ERR unknown command 'wait'":                                                      true,
		"ERR unknown command `CLIENT`, with args beginning with: `TRACKING` ":             true,
		"ERR unknown subcommand 'tracking'. Try CLIENT HELP.":                             true,
		"ERR command 'client|tracking' is not allowed":                                    true,
		"ERR command is not allowed":                                                      true,
		"unsupported command 'HELLO'":                                                     true,
		"ERR command eval not support for normal user":                                    true,
		"NOPERM this user has no permissions to run the 'wait' command":                   true,
		"NOPERM User app has no permissions to run the 'pubsub|numsub' command":           true,
		"NOPERM No permissions to access a key":                                           false,
		"NOPERM this user has no permissions to access one of the channels used":          false,
		"ERR Unknown Redis command called from script script: c0ffee, on @user_script:3.": false,
		"ERR This Redis command is not allowed from script":                               false,
		"ERR section (memory) is not supported":                                           false,
		"ERR WAIT cannot be used with replica instances.":                                 false,
		"LOADING Redis is loading the dataset in memory":                                  false,
		"READONLY You can't write against a read only replica.":                           false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":               false,
	} {
		s.Embedded.SetError(text)
		err := c.Do(t.Context(), c.B().Incr().Key("k").Build()).Error() // rueidis repeats no write
		require.Error(t, err)
		require.Equal(t, unsupported, script.Unsupported(err), text)
	}
	require.False(t, script.Unsupported(nil))
	require.False(t, script.Unsupported(errors.New("unknown command")), "no server said so")
}

// A server that refuses EVALSHA is sent the text, once after the refusal and then at once. A user without the right is
// denied.
func TestRunner_EvalshaRefused_SendsTheText(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server)
	trap := func(command, text string) {
		p.Trap(&redistest.Trap{Match: redistest.Command(command), Every: true, Fate: redistest.RefuseRequest,
			Says: func([]string) string { return text }})
	}
	trap("EVALSHA", "ERR command is not allowed")
	c := p.Server().Client(t)
	r := script.NewRunner(c, 20*time.Second)
	var book redistest.Logbook
	r.Lacks = errs.NewLacks(book.Logger())
	count := script.New("count", "return redis.call('incr', KEYS[1])")
	for n := range 3 {
		m := redistest.NoError(r.Do(t.Context(), script.Call{Script: count, Keys: []string{"n"}}))(t)
		v := redistest.NoError(m.AsInt64())(t)
		require.EqualValues(t, n+1, v, "it ran once each time")
	}
	require.True(t, r.Lacks.Has(errs.LackEvalsha))
	require.Equal(t, 1, book.Count("command=EVALSHA"), &book)

	p.Heal()
	trap("EVALSHA", "NOPERM this user has no permissions to run the 'evalsha' command")
	r.Lacks = errs.NewLacks(slog.New(slog.DiscardHandler))
	_, err := r.Do(t.Context(), script.Call{Script: count, Keys: []string{"n"}})
	require.ErrorIs(t, err, errs.ErrDenied)
	require.False(t, r.Lacks.Has(errs.LackEvalsha))

	p.Heal()
	trap("EVALSHA", "ERR unknown command 'EVALSHA'")
	trap("EVAL", "ERR unknown command 'EVAL'")
	_, err = r.Do(t.Context(), script.Call{Script: count, Keys: []string{"n"}})
	require.ErrorContains(t, err, "unknown command 'EVALSHA'", "the first says what is to be allowed")
	require.False(t, r.Lacks.Has(errs.LackEvalsha))
	n := redistest.NoError(server.Client(t).Do(t.Context(), c.B().Get().Key("n").Build()).AsInt64())(t)
	require.EqualValues(t, 3, n)
}

func TestCanWait_Refused_IsErrInvalidOption(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	can := func(fate redistest.Fate, says string, replicas int) error {
		p := redistest.NewProxy(t, redistest.Start(t))
		p.Trap(&redistest.Trap{Match: redistest.Command("WAIT"), Every: true, Fate: fate,
			Says: func([]string) string { return says }})
		return script.CanWait(ctx, p.Server().Client(t), 300*time.Millisecond, replicas)
	}
	require.NoError(t, script.CanWait(ctx, redistest.Start(t).Client(t), 20*time.Second, 1))
	require.NoError(t, can(redistest.RefuseRequest, "ERR unknown command 'WAIT'", 0), "it is not needed")
	err := can(redistest.RefuseRequest, "ERR unknown command 'WAIT'", 2)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "MinReplicas is 2, must be 0: the server refuses WAIT: unknown command 'WAIT'")
	require.NoError(t, can(redistest.RefuseRequest, "LOADING Redis is loading the dataset in memory", 1), "it passes")
	for _, fate := range []redistest.Fate{redistest.LoseRequest, redistest.LoseRequestSilently} {
		err = can(fate, "", 1)
		require.ErrorIs(t, err, errs.ErrUnavailable)
		require.ErrorContains(t, err, "MinReplicas is 1")
	}
}
