package script

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// send sends the call, once unless a refusal proves that nothing has run. unmet is why the replicas have not confirmed
// a call that was answered.
func (r *Runner) send(ctx context.Context, call Call) (result rueidis.RedisResult, unmet error) {
	switch {
	case call.CachedFor > 0:
		return r.client.DoCache(ctx, call.Cached, call.CachedFor), nil
	case call.Command != nil:
		// A command that only reads is pinned, so that rueidis (1.0.79) does not recycle it. rueidis itself sends such a
		// command again, on another connection, when its own ends. It would recycle the command when the other connection
		// answers, while the writer of the ended connection may still be reading its words, and would write words of the next
		// command that is built (TestRead_RepeatedByRueidis_IsNotRecycled). Other commands and scripts are never sent again
		// so.
		return r.client.Do(ctx, call.Command(r.client.B()).Pin()), nil
	case call.Tracked == nil && call.Replicas == 0:
		result = r.client.Do(ctx, call.command(r.client.B()))
	case call.Replicas > 0 && r.cluster:
		result, unmet = r.sendToPrimary(ctx, call)
	case call.Tracked != nil:
		result, unmet = r.sendOn(ctx, call.Tracked, call, call.Tracked.B().ClientCaching().Yes().Build())
	default:
		result, unmet = r.sendOn(ctx, r.client, call)
	}
	if result.Error() != nil {
		return r.sendText(ctx, call, result)
	}
	return result, unmet
}

// sendText sends the text of a script whose hash was refused with result, if the refusal proves that nothing has run:
// an EVAL after any other error would be a second run (TestRunner_ScriptFlushed_SendsTheTextOnce).
func (r *Runner) sendText(ctx context.Context, call Call,
	result rueidis.RedisResult) (again rueidis.RedisResult, unmet error) {
	refusal, refused := rueidis.IsRedisErr(result.Error())
	if !refused || call.byText || call.Script.plain != "" {
		return result, nil
	}
	call.byText = true
	switch {
	case refusal.IsNoScript():
		return r.send(ctx, call)
	case noEvalsha(refusal): // and EVAL is perhaps allowed
		again, unmet = r.send(ctx, call)
		if !Unsupported(again.Error()) {
			r.Lacks.Add(errs.LackEvalsha, refusal)
			return again, unmet
		} // else the first refusal says what is to be allowed
	}
	return result, nil
}

// redirects is how many redirections of a Cluster's nodes are followed.
const redirects = 3

// sendToPrimary is send for a call that replicas are to confirm, in a Cluster. There rueidis follows MOVED and ASK with
// the script alone: the WAIT is answered by the node where nothing was written. (At an ASK rueidis panics.) So the
// redirections are followed here, each time with both.
func (r *Runner) sendToPrimary(ctx context.Context, call Call) (result rueidis.RedisResult, unmet error) {
	conn, release := r.client.Dedicate() // a dedicated connection follows no redirection
	busy := false
	defer func() {
		if busy { // rueidis (1.0.79) would unsubscribe on it, and panic when that is refused, too: see pubsub
			conn.Close()
		}
		release()
	}()
	var before []rueidis.Completed
	if call.Tracked != nil {
		before = append(before, conn.B().ClientCaching().Yes().Build())
	}
	result, unmet = r.sendOn(ctx, conn, call, before...)
	busy = saysBusy(result.Error()) || saysBusy(unmet)
	for range redirects {
		refusal, refused := rueidis.IsRedisErr(result.Error())
		if !refused {
			break
		}
		addr, moved := refusal.IsMoved()
		before = nil
		if !moved {
			addr, _ = refusal.IsAsk()
		}
		node, known := r.client.Nodes()[addr]
		if !known {
			break
		}
		if !moved {
			before = append(before, node.B().Asking().Build())
		}
		result, unmet = r.sendOn(ctx, node, call, before...)
	}
	return result, unmet
}

// sendOn sends the script on one connection, after a command on which it depends, if there is one, and before WAIT, if
// replicas are to confirm it: WAIT counts what its own connection wrote.
func (r *Runner) sendOn(ctx context.Context, conn Conn, call Call,
	before ...rueidis.Completed) (result rueidis.RedisResult, unmet error) {
	commands := append(before, call.command(conn.B()))
	if call.Replicas > 0 {
		commands = append(commands,
			conn.B().Wait().Numreplicas(int64(call.Replicas)).Timeout(millis(call.ReplicasWait)).Build())
	}
	results := conn.DoMulti(ctx, commands...)
	if call.Tracked != nil && len(before) > 0 && Unsupported(results[0].Error()) { // CLIENT CACHING
		r.Lacks.Add(errs.LackTracking, results[0].Error())
	}
	if call.Replicas > 0 {
		unmet = r.unmet(call, results[len(before)+1])
	}
	return results[len(before)], unmet
}

// unmet is why replicas have not confirmed a call, by the reply to its WAIT.
func (r *Runner) unmet(call Call, wait rueidis.RedisResult) error {
	switch confirmed, err := wait.AsInt64(); {
	case Unsupported(err):
		r.Lacks.Add(errs.LackWait, err)
		return fmt.Errorf("%w: %w", errs.ErrNotReplicated, NotConfirmed(call.Replicas, err))
	case err != nil:
		return fmt.Errorf("%w: WAIT: %w", errs.ErrNotReplicated, err)
	case confirmed < int64(call.Replicas):
		return fmt.Errorf("%w: %d of %d replicas confirmed within %v", errs.ErrNotReplicated, confirmed, call.Replicas,
			call.ReplicasWait)
	}
	return nil
}
