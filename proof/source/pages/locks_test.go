package pages_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

var errBusy = errors.New("try again later")

// Charge charges an order. It waits at most five seconds while another process does so.
func Charge(ctx context.Context, locks *rlock.Client, order string, pay func(context.Context) error) error {
	err := locks.Reentrant("order:"+order).WithWait(5*time.Second).Do(ctx, pay) // pay's ctx ends if the lock is lost
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return errBusy
	}
	return err
}

// Pay makes the payment of an order once, however often it is called, and returns the receipt.
func Pay(ctx context.Context, locks *rlock.Client, order, amount string,
	charge func(ctx context.Context, token int64) ([]byte, error)) ([]byte, error) {
	payments := locks.Once("payments", rlock.OnceOptions{Keep: 24 * time.Hour})
	receipt, _, err := payments.Do(ctx, order, amount, charge)
	return receipt, err
}

// Reprice reads prices together with other readers, and changes them alone.
func Reprice(ctx context.Context, locks *rlock.Client, read, change func(context.Context) error) error {
	prices := locks.ReadWrite("prices")
	if err := prices.Read().Do(ctx, read); err != nil {
		return err
	}
	return prices.Write().Do(ctx, change)
}

// Import imports a file unless another process is doing it.
func Import(ctx context.Context, locks *rlock.Client, load func(context.Context) error, publish func() error) error {
	hold, err := locks.Reentrant("import").TryLock(ctx, 0, 0) // ask once; renew until Unlock
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)                          // also works after ctx has ended
	if err := load(hold.Context(ctx)); err != nil { // ends with ctx, and with the hold
		return err
	}
	if time.Until(hold.Until()) < time.Second {
		return redlatch.ErrLost // too late for what cannot be undone
	}
	return publish()
}

// Withdraw changes an account whose table rejects a token smaller than the last:
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

func nothing(context.Context) error { return nil }

func TestCharge_HeldElsewhere_IsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		locks := srv.Open().Locks()
		require.NoError(t, Charge(t.Context(), locks, "1", nothing))
		srv.HoldElsewhere("order:2")
		require.ErrorIs(t, Charge(t.Context(), locks, "2", nothing), errBusy)
	})
}

func TestImport_LockLost_PublishesNothing(t *testing.T) {
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
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.Equal(t, 1, published)
		srv.HoldElsewhere("import")
		require.ErrorIs(t, Import(t.Context(), locks, nothing, publish), redlatch.ErrNotAcquired)
	})
}

func TestWithdraw_OneAfterAnother_HaveGreaterTokens(t *testing.T) {
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

func TestReprice_AWriter_IsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := redlatchtest.New(t).Open().Locks()
		prices := locks.ReadWrite("prices")
		read := func(ctx context.Context) error {
			other, err := locks.ReadWrite("prices").Read().TryLock(ctx, 0, 0)
			require.NoError(t, err, "a reader among readers")
			require.NoError(t, other.Unlock(ctx))
			return nil
		}
		require.NoError(t, Reprice(t.Context(), locks, read, func(context.Context) error {
			_, err := prices.Read().TryLock(t.Context(), 0, 0)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			return nil
		}))
	})
}

func TestPay_CalledTwice_ChargesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := redlatchtest.New(t).Open().Locks()
		charges := 0
		charge := func(context.Context, int64) ([]byte, error) {
			charges++
			return []byte("receipt"), nil
		}
		for range 3 {
			receipt, err := Pay(t.Context(), locks, "7", "5 euros", charge)
			require.NoError(t, err)
			require.Equal(t, "receipt", string(receipt))
		}
		_, err := Pay(t.Context(), locks, "7", "6 euros", charge)
		require.ErrorIs(t, err, redlatch.ErrMismatch)
		require.Equal(t, 1, charges)
	})
}
