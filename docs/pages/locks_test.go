package pages_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

var errBusy = errors.New("try again later")

// Charge charges an order, unless another process does so for longer than five seconds.
func Charge(ctx context.Context, locks *rlock.Client, order string, pay func(context.Context) error) error {
	err := locks.Reentrant("order:"+order).WithWait(5*time.Second).Do(ctx, pay) // pay's ctx ends if the lock is lost
	if errors.Is(err, rlock.ErrNotAcquired) {
		return errBusy
	}
	return err
}

// Import imports a file, if nobody else does so now.
func Import(ctx context.Context, locks *rlock.Client, load func(context.Context) error, publish func() error) error {
	hold, err := locks.Reentrant("import").TryLock(ctx, 0, 0) // ask once; renew until Unlock
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)                          // works after ctx has ended, too
	if err := load(hold.Context(ctx)); err != nil { // ends with ctx, and with the hold
		return err
	}
	if time.Until(hold.Until()) < time.Second {
		return rlock.ErrLost // too late for what cannot be undone
	}
	return publish()
}

// Withdraw changes an account whose table refuses a smaller token than it has seen:
//
//	update account set balance = balance - $1, fence = $2 where id = 7 and fence <= $2
func Withdraw(ctx context.Context, locks *rlock.Client, update func(ctx context.Context, token int64) error) error {
	hold, err := locks.Fenced("account:7").Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	token, _ := hold.Token()
	return update(hold.Context(ctx), token)
}

// Show and Reload share a price list: any number of processes read it, one writes it while nobody reads.
func Show(ctx context.Context, locks *rlock.Client, read func(context.Context) error) error {
	return locks.ReadWrite("prices").Read().Do(ctx, read)
}

func Reload(ctx context.Context, locks *rlock.Client, write func(context.Context) error) error {
	return locks.ReadWrite("prices").Write().Do(ctx, write)
}

// Transfer holds both accounts, or none. Two transfers in opposite directions do not deadlock.
func Transfer(ctx context.Context, locks *rlock.Client, from, to string, book func(context.Context) error) error {
	both, err := rlock.Multi(locks.Reentrant("account:"+from), locks.Reentrant("account:"+to))
	if err != nil {
		return err
	}
	return both.WithWait(5*time.Second).Do(ctx, book)
}

// Save may be called alone, or by somebody who holds the cart: the context says which.
func Save(ctx context.Context, locks *rlock.Client, store func(context.Context) error) error {
	return locks.Reentrant("cart:9").Do(ctx, store)
}

func Checkout(ctx context.Context, locks *rlock.Client, store func(context.Context) error) error {
	return locks.Reentrant("cart:9").Do(ctx, func(ctx context.Context) error {
		return Save(ctx, locks, store) // the same owner, so at once
	})
}

func nothing(context.Context) error { return nil }

func TestAnOrderIsChargedByOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		locks := srv.Open().Locks()
		require.NoError(t, Charge(t.Context(), locks, "1", nothing))
		srv.HoldElsewhere("order:2")
		require.ErrorIs(t, Charge(t.Context(), locks, "2", nothing), errBusy)
	})
}

func TestAnImportThatLostItsLockPublishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		locks := srv.Open().Locks()
		published := 0
		publish := func() error { published++; return nil }
		require.NoError(t, Import(t.Context(), locks, nothing, publish))
		err := Import(t.Context(), locks, func(ctx context.Context) error {
			srv.Lose("import")
			<-ctx.Done()
			return context.Cause(ctx)
		}, publish)
		require.ErrorIs(t, err, rlock.ErrLost)
		require.Equal(t, 1, published)
		srv.HoldElsewhere("import")
		require.ErrorIs(t, Import(t.Context(), locks, nothing, publish), rlock.ErrNotAcquired)
	})
}

func TestEachWithdrawalHasAGreaterToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := redlatchtest.New(t).Open().Locks()
		var fence int64
		for range 3 {
			require.NoError(t, Withdraw(t.Context(), locks, func(_ context.Context, token int64) error {
				require.Greater(t, token, fence)
				fence = token
				return nil
			}))
		}
	})
}

func TestReadersShareAListAndAWriterDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		here, there := srv.Open().Locks(), srv.Open().Locks()
		require.NoError(t, Show(t.Context(), here, func(ctx context.Context) error {
			require.NoError(t, Show(t.Context(), there, nothing))
			brief, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, Reload(brief, there, nothing), rlock.ErrNotAcquired)
			return nil
		}))
		require.NoError(t, Reload(t.Context(), there, nothing))
	})
}

func TestATransferHoldsBothAccountsOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		locks := srv.Open().Locks()
		require.NoError(t, Transfer(t.Context(), locks, "1", "2", nothing))
		srv.HoldElsewhere("account:2")
		require.ErrorIs(t, Transfer(t.Context(), locks, "1", "2", nothing), rlock.ErrNotAcquired)
		taken, err := locks.Reentrant("account:1").IsLocked(t.Context())
		require.NoError(t, err)
		require.False(t, taken)
	})
}

func TestACartIsSavedAloneAndUnderACheckout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := redlatchtest.New(t).Open().Locks()
		require.NoError(t, Save(t.Context(), locks, nothing))
		require.NoError(t, Checkout(t.Context(), locks, nothing))
	})
}
