package redlatchk8s_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/redlatch/redlatch"
	redlatchk8s "github.com/redlatch/redlatch/contrib/k8s"
)

// Manager makes a manager of which one of all processes runs the controllers.
func Manager(red *redlatch.Client, config *rest.Config) (manager.Manager, error) {
	lock, err := redlatchk8s.New(red.Hub().Client(), "my-operator", redlatchk8s.Options{})
	if err != nil {
		return nil, err
	}
	return manager.New(config, manager.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
	})
}

// Lead runs fn in one of all processes, without controller-runtime. It returns when ctx ends or the leadership is lost:
// ctx of fn has ended then, and the program should exit.
func Lead(ctx context.Context, red *redlatch.Client, fn func(context.Context)) error {
	lock, err := redlatchk8s.New(red.Hub().Client(), "my-operator", redlatchk8s.Options{})
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: 15 * time.Second,
		RenewDeadline: 10 * time.Second,
		RetryPeriod:   2 * time.Second,
		Callbacks:     leaderelection.LeaderCallbacks{OnStartedLeading: fn, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	return nil
}

// connect is a program's client, of a server in this process.
func connect() (red *redlatch.Client, end func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	red, err := redlatch.Open(context.Background(),
		rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true}, redlatch.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return red, func() {
		red.Close(context.Background())
		server.Close()
	}
}

func ExampleNew() {
	red, end := connect()
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	err := Lead(ctx, red, func(context.Context) {
		fmt.Println("leads")
		cancel()
	})
	fmt.Println(err)
	// Output:
	// leads
	// <nil>
}

// What an elector does with a Lock: of two candidates that have read the same record one writes.
func ExampleLock_Update() {
	red, end := connect()
	defer end()
	ctx := context.Background()
	var all [2]*redlatchk8s.Lock
	for i, who := range []string{"ann", "bob"} {
		var err error
		all[i], err = redlatchk8s.New(red.Hub().Client(), "boss", redlatchk8s.Options{Identity: who,
			Events: func(event string) { fmt.Println(who, event) }})
		if err != nil {
			log.Fatal(err)
		}
	}
	ann, bob := all[0], all[1]
	_, _, err := ann.Get(ctx)
	fmt.Println("none:", apierrors.IsNotFound(err))
	fmt.Println("created:", ann.Create(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: ann.Identity()}))
	ann.RecordEvent("became leader")
	record, _, err := bob.Get(ctx)
	fmt.Println(bob.Identity(), "sees", record.HolderIdentity, "of", bob.Describe(), err)
	fmt.Println("renewed:", ann.Update(ctx, *record))
	record.HolderIdentity = bob.Identity()
	fmt.Println("conflict:", apierrors.IsConflict(bob.Update(ctx, *record)))
	// Output:
	// none: true
	// created: <nil>
	// ann became leader
	// bob sees ann of boss <nil>
	// renewed: <nil>
	// conflict: true
}
