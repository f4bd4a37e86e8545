package services

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
)

// attributes are those of a child that ends with this process. Where this is root's, the child is the first of users
// that the machine has, and the directory is that user's.
func attributes(users []string, dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return attr, nil
	}
	i := slices.IndexFunc(users, func(name string) bool { _, err := user.Lookup(name); return err == nil })
	if i < 0 {
		return nil, fmt.Errorf("root cannot run it, and there is no user of %q", users)
	}
	u, err := user.Lookup(users[i])
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, os.Chown(dir, uid, gid)
}
