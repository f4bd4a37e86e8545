package redpacket

import (
	"context"

	"github.com/redlatch/redlatch/internal/script"
)

// The scripts' Go functions, with the call's id given, so that tests can send one call twice.

func (p *Packet) GrabAs(ctx context.Context, id string, users ...string) ([]Share, error) {
	return p.grab(ctx, id, users)
}

// SendAs is Send with shares already drawn, in parts of a size of the test's choice; the parts before from are left
// out.
func (p *Packet) SendAs(ctx context.Context, id string, o Spec, shares []int64,
	from, part int) (epoch int64, err error) {
	if err := o.check(); err != nil {
		return 0, err
	}
	for at := from; at < len(shares); at += part {
		if epoch, err = p.sendPart(ctx, id, o, at, shares[at:min(at+part, len(shares))]); err != nil {
			return epoch, err
		}
	}
	return epoch, nil
}

func (p *Packet) RefundAs(ctx context.Context, id string) (Share, error) {
	return p.refund(ctx, id)
}

// SharesBy is Shares, in pages of a size of the test's choice.
func (p *Packet) SharesBy(ctx context.Context, size int) ([]Share, error) { return p.all(ctx, size) }

// Source is the text of a script.
func Source(file string) string {
	text, err := script.Compose(files, file)
	if err != nil {
		panic(err)
	}
	return text
}
