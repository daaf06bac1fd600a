// Which answers an event makes old.
import type { ServerEvent } from '../api/types';

export type Part = 'run' | 'tree' | 'iterations' | 'detail' | 'server';

export const ALL_PARTS: readonly Part[] = ['run', 'tree', 'iterations', 'detail', 'server'];

export function partsOf(event: ServerEvent): readonly Part[] {
  switch (event.event) {
    case 'tree_changed':
      return ['tree', 'run'];
    case 'run_state_changed':
      return ['run'];
    case 'iteration_added':
    case 'iteration_changed':
      return ['iterations', 'run', 'detail'];
    case 'phase_changed':
      return ['run', 'detail'];
    case 'project_changed':
      return ALL_PARTS;
    case 'stream':
      return [];
  }
}
