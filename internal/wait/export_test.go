package wait

// Linger is how long grants are listened for when nobody waits.
const Linger = idleTimeout
