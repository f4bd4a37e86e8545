package rsemaphore

// Rooms is how many events of this process are waited for.
func Rooms() int {
	rooms.Lock()
	defer rooms.Unlock()
	return len(rooms.all)
}
