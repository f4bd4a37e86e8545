package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/bench/internal/results"
)

// facts are what the figures depend on.
func facts(ctx context.Context, cfg Config, command string) ([]results.Fact, error) {
	s, err := startRedis()
	if err != nil {
		return nil, err
	}
	server := s.version(ctx)
	s.stop()
	out := []results.Fact{
		{Name: "date", Value: time.Now().UTC().Format("2006-01-02 15:04 UTC")},
		{Name: "command", Value: command},
		{Name: "machine", Value: fmt.Sprintf("%d x %s, %s", runtime.NumCPU(), firstOf("/proc/cpuinfo", "model name"),
			runtime.GOOS+"/"+runtime.GOARCH)},
		{Name: "memory", Value: firstOf("/proc/meminfo", "MemTotal")},
		{Name: "go", Value: runtime.Version()},
		{Name: "server", Value: server + ", a new one for each measurement, on the same machine, no persistence"},
		{Name: "load before", Value: loadAverage()},
		{Name: "redlatch", Value: revision(ctx)},
		{Name: "rounds", Value: fmt.Sprint(cfg.Rounds)},
		{Name: "contended", Value: fmt.Sprintf("%v after %v (half of that with 2 workers, twice with 256), think time %v, "+
			"lease %v", cfg.Duration, cfg.Warm, cfg.Think, cfg.Lease)},
	}
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			versions[d.Path] = d.Version
		}
	}
	for _, p := range peers {
		if p.Optional && !slices.Contains(cfg.Peers, p.Name) {
			continue
		}
		version := versions[p.Module]
		if p.Module == "github.com/redlatch/redlatch" {
			version = "this repository"
		}
		if p.Optional {
			var err error
			if version, err = redissonVersion(ctx); err != nil {
				return nil, err
			}
		}
		out = append(out, results.Fact{Name: "peer " + p.Name,
			Value: fmt.Sprintf("%s, %s %s; %s", p.Wakes, p.Module, version, p.How)})
	}
	for _, m := range claimModes {
		out = append(out, results.Fact{Name: "claims " + m.Name, Value: m.How})
	}
	return out, nil
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

// firstOf is the value of the first "name : value" line of a file of the kernel's.
func firstOf(file, name string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return "unknown"
}

func revision(ctx context.Context) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	v := strings.TrimSpace(string(head))
	if exec.CommandContext(ctx, "git", "diff", "--quiet", "HEAD", "--", "../../rlock", "../../rsemaphore",
		"../../rcounter", "../../pubsub", "../../internal").Run() != nil {
		v += " with changes"
	}
	return v
}
