"""Engine processes under the gateway: started on command, watched, restarted, stopped; a control socket for the commands."""
